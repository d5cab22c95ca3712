"""The packed states of a copy: what comes of a checkpoint whose disk was full, or that is refused.

A copy without an engine, as a passive one is, holds chains.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from holdfast.core.effects import ApplyCheckpoint
from holdfast.core.records import Checkpoint, RecoveryRecord, StreamEnd
from holdfast.errors import StateError
from holdfast.kept.state import PackedStates
from holdfast.kept.state_directory import StateDirectory
from holdfast.packed import Chain, PackedState
from holdfast.spark.chains import Workshop


def no_engine() -> NoReturn:
    raise AssertionError("a chain is kept as it came")


def packed(boundary: int, since: int | None = None) -> PackedState:
    return PackedState(boundary, boundary, since, ())


def boundaries(chain: object) -> list[int]:
    assert isinstance(chain, tuple)
    return [each.boundary for each in chain]


def order(chain: Chain, base: int | None = None, held: int | None = None) -> ApplyCheckpoint:
    """To hold the checkpoint that has the number of its boundary."""
    boundary = chain[-1].boundary
    record = RecoveryRecord(boundary, boundary, (("in", 3),), (("out", 7),))
    return ApplyCheckpoint(Checkpoint(boundary, 0, base, record, (), chain), held)


class Copy:
    """What a passive copy keeps of its states, as the disk's thread does."""

    def __init__(self, path: Path | None) -> None:
        workshop = Workshop(no_engine, Path("unused"))
        self.kept = PackedStates(path, ["query"], workshop)

    def apply(self, order: ApplyCheckpoint) -> object:
        held = self.kept.take(order.checkpoint)
        self.kept.save_taken(order, held)
        return held


def fail(self: StateDirectory, *given: object) -> NoReturn:
    raise OSError("No space left on device")


def test_after_a_whole_one_that_could_not_be_kept_changes_of_what_is_held_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy(tmp_path / "state")
    copy.apply(order((packed(10),)))
    with monkeypatch.context() as full:
        full.setattr(StateDirectory, "write_state", fail)
        with pytest.raises(OSError, match="No space"):
            copy.apply(order((packed(20),), held=10))
    assert copy.apply(order((packed(30, 10),), base=10, held=10)) == (packed(10), packed(30, 10))
    copy.kept.close()


@pytest.mark.parametrize("persists", [True, False])
def test_after_a_whole_one_that_its_driver_has_no_use_for_changes_of_what_is_held_are_taken(
    tmp_path: Path, persists: bool
) -> None:
    copy = Copy(tmp_path / "state" if persists else None)
    copy.apply(order((packed(10),)))
    copy.apply(order((packed(20),), held=10))
    assert copy.apply(order((packed(30, 10),), base=10, held=10)) == (packed(10), packed(30, 10))
    copy.kept.close()
    if persists:
        again = Copy(tmp_path / "state")
        assert boundaries(again.kept.found()) == [10, 30]
        again.kept.close()


def test_a_note_of_the_end_leaves_what_could_not_be_written_out_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy(tmp_path / "state")
    copy.apply(order((packed(10),)))
    write = StateDirectory._write_link

    def full_after_the_first(self: StateDirectory, link: PackedState, waiting: object) -> object:
        if link.boundary == 30:
            fail(self)
        return write(self, link, {})

    monkeypatch.setattr(StateDirectory, "_write_link", full_after_the_first)
    with pytest.raises(OSError, match="No space"):
        copy.apply(order((packed(20), packed(30, 20)), held=10))
    copy.kept.end([StreamEnd("out", 7, 10)])
    copy.kept.close()
    again = Copy(tmp_path / "state")
    assert again.kept.record is not None
    assert again.kept.record.boundary == 10
    assert boundaries(again.kept.found()) == [10]
    again.kept.close()


def test_a_state_that_is_not_the_record_s_is_refused(tmp_path: Path) -> None:
    copy = Copy(tmp_path / "state")
    copy.apply(order((packed(10),)))
    copy.kept.close()
    directory = StateDirectory(tmp_path / "state")
    assert directory.manifest is not None
    directory.write_state((packed(20),), {})
    directory.write_manifest(directory.manifest)
    directory.close()
    again = Copy(tmp_path / "state")
    with pytest.raises(StateError, match="would be missing"):
        again.kept.found()
    again.kept.close()
