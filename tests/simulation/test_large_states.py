"""Copies whose whole state is under way for longer than a checkpoint may take at first."""

from __future__ import annotations

import pytest

from holdfast.simulation.mutations import MUTATIONS
from holdfast.simulation.run import Verdict, run, shaped


@pytest.mark.parametrize("seed", range(3))
def test_they_are_sent_changes_once_they_hold_one(seed: int) -> None:
    one = shaped(seed, "bulky")
    assert one is not None
    result = run(one)
    assert (result.verdict, result.reason) == (Verdict.FINE, "")


def test_who_counts_only_the_last_that_went_out_is_noticed() -> None:
    name = "count only the checkpoint that went out last"
    (mistake,) = [one for one in MUTATIONS if one.name == name]
    one = shaped(0, "bulky")
    assert one is not None
    with mistake.applied():
        assert "which builds on none of them" in run(one).reason
