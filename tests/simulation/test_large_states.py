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


@pytest.mark.parametrize(
    ("name", "seed", "seen"),
    [
        ("count only the checkpoint that went out last", 0, "which builds on none of them"),
        ("forget what is held before the next one is", 21, "from what it has forgotten"),
        ("count links whose record was never written", 1, "s on disk, and the record of"),
    ],
)
def test_a_mistake_is_noticed(name: str, seed: int, seen: str) -> None:
    (mistake,) = [one for one in MUTATIONS if one.name == name]
    one = shaped(seed, "bulky")
    assert one is not None
    with mistake.applied():
        assert seen in run(one).reason
