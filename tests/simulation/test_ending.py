"""Replicas that are stopped in order, and killed before: what a changed network may go on from."""

from __future__ import annotations

import pytest

from holdfast.simulation.mutations import MUTATIONS
from holdfast.simulation.planting import Mutation
from holdfast.simulation.run import Verdict, run, shaped

PLANTED = [one for one in MUTATIONS if one.shape == "stopped"]


# With seed 8 nobody is stopped in order.
@pytest.mark.parametrize("seed", [seed for seed in range(12) if seed != 8])
def test_no_reader_has_more_than_the_logs_of_those_who_ended_in_order(seed: int) -> None:
    scenario = shaped(seed, "stopped")
    assert scenario is not None
    result = run(scenario)
    assert result.verdict is Verdict.FINE, result.reason
    assert result.faults["stopped in order"]
    assert result.events["Ending"]


@pytest.mark.thorough
@pytest.mark.parametrize("planted", PLANTED, ids=lambda one: one.name)
def test_a_mistake_is_found(planted: Mutation) -> None:
    with planted.applied():
        found = (run(scenario) for scenario in planted.scenarios())
        assert any(one.verdict is Verdict.WRONG for one in found)
