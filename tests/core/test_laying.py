"""What changes of a state are laid on, whatever fails on the way."""

from __future__ import annotations

import pytest

from holdfast.core.effects import ApplyCheckpoint
from holdfast.core.laying import Bases, DiskEnd, Links, to_build_on
from holdfast.core.records import Checkpoint, RecoveryRecord


def checkpoint(number: int, base: int | None = None) -> Checkpoint:
    return Checkpoint(number, 0, base, RecoveryRecord(number, number, (), ()), (), None)


def test_the_next_checkpoint_may_build_on_this_one_or_on_what_was_held_before() -> None:
    bases: Bases[str] = Bases()
    assert bases.of(checkpoint(1)) is None
    bases.add(ApplyCheckpoint(checkpoint(1)), "first")
    bases.add(ApplyCheckpoint(checkpoint(2), held=1), "second")
    assert bases.of(checkpoint(3, base=1)) == "first"
    assert bases.of(checkpoint(3, base=2)) == "second"
    # Its driver was told that the second is there, and goes on from the first all the same.
    bases.add(ApplyCheckpoint(checkpoint(3), held=1), "third")
    assert bases.of(checkpoint(4, base=1)) == "first"
    with pytest.raises(KeyError):
        bases.of(checkpoint(4, base=2))


def test_what_is_sent_may_build_on_a_base_that_is_long_confirmed() -> None:
    known: dict[int, str] = {}
    for number in range(1, 9):
        base = None if number == 1 else 1
        known = to_build_on(known, checkpoint(number, base), f"state {number}")
    assert sorted(known) == [1, 6, 7, 8]


def test_only_changes_of_what_is_on_disk_are_written_as_changes() -> None:
    end: DiskEnd[list[str]] = DiskEnd()
    own, other = ["own"], ["own"]
    assert not end.takes_own
    end.has_own(own)
    assert end.takes_own
    end.begin(other)
    assert not end.takes_own, "it is as good, but not the state of which changes are known"
    end.begin(own)
    assert end.takes_own
    end.begins_to_write()
    assert not end.takes_own, "what fails in the middle leaves nothing to build on"
    end.has_taken(4, other)
    assert not end.takes_own, "the replica has not begun from it"
    assert end.takes(checkpoint(5, base=4))
    assert not end.takes(checkpoint(5, base=3))
    assert not end.takes(checkpoint(5))


def test_links_count_with_their_record_and_never_without_it() -> None:
    links: Links[str] = Links(["whole"])
    links.write(["changes"], whole=False)
    assert [*links.newest] == ["whole", "changes"]
    assert [*links.counted] == ["whole"]
    links.call_off()
    assert [*links.newest] == ["whole"]
    links.write(["anew", "more"], whole=True)
    links.count()
    assert [*links.counted] == [*links.newest] == ["anew", "more"]
