"""Sources with few tuples: windows end while an input is missing and no tuple waits."""

from __future__ import annotations

import pytest

from holdfast.simulation.main import simulate_seed
from holdfast.simulation.mutations import MUTATIONS
from holdfast.simulation.run import Verdict, run, shaped


@pytest.mark.parametrize("seed", range(4))
def test_a_window_that_ended_is_answered_though_no_tuple_comes(seed: int) -> None:
    scenario = shaped(seed, "sparse")
    assert scenario is not None
    result = run(scenario)
    assert result.verdict is Verdict.FINE, result.reason


def test_fragments_behind_one_whose_window_waits_are_told_in_time() -> None:
    result = simulate_seed(308)
    assert result.verdict is Verdict.FINE, result.reason


def test_windows_that_wait_for_the_next_tuple_are_found() -> None:
    mistake = next(one for one in MUTATIONS if one.name == "let windows wait for the next tuple")
    found = []
    with mistake.applied():
        for seed in range(8, 13):
            scenario = shaped(seed, "sparse")
            assert scenario is not None
            found.append(run(scenario).verdict)
    assert Verdict.WRONG in found
