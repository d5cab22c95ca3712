"""The ledger: damage is refused, and a full disk is over when there is room again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast import disk
from holdfast.disk import Fault, Operation
from holdfast.errors import StateError
from holdfast.kept import ledger
from holdfast.kept.ledger import Ledger, LedgerLine, LedgerState

NEEDED = [Operation.CREATE, Operation.WRITE, Operation.SYNC, Operation.RENAME]


def line(number: int, producer: str = "p") -> LedgerLine:
    """The ``number``-th line of ten tuples."""
    saved = {"next_id": number * 10 + 10}
    return LedgerLine(number * 10, 10, saved, producer, 1, number + 1, number * 10 + 10)


def filled(path: Path, lines: int = 3) -> Ledger:
    found = Ledger(path, 0)
    for number in range(lines):
        found.add([line(number, f"p{number}")])
        found.settled(line(number, f"p{number}"))
    return found


def standing(path: Path, next_id: int) -> LedgerState:
    """What a ledger that is opened beside a log at ``next_id`` knows."""
    found = Ledger(path, next_id)
    found.close()
    return found.standing


def test_no_flipped_bit_makes_it_forget_a_producer(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    filled(path).close()
    standing(path, 30)  # now all three lines were written as a whole
    whole = standing(path, 30)
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        with pytest.raises(StateError, match=str(path)):
            Ledger(path, 30)
    path.write_bytes(data)
    assert standing(path, 30) == whole


def test_damage_in_added_lines_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    filled(path).close()
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        with pytest.raises(StateError, match=str(path)):
            Ledger(path, 30)


def test_what_a_crash_tore_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    filled(path, 2).close()
    more = Ledger(path, 20)
    more.add([line(2)])
    more.close()
    data = path.read_bytes()
    added = data.rindex(b"\n", 0, -1) + 1
    for size in range(added, len(data)):
        path.write_bytes(data[:size])
        assert set(standing(path, 20).producers) == {"p0", "p1"}


@pytest.mark.parametrize("failing", NEEDED, ids=lambda each: each.value)
def test_a_full_disk_while_it_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: Operation
) -> None:
    path = tmp_path / "ledger.jsonl"
    found = filled(path, 3)
    monkeypatch.setattr(ledger, "_COMPACT_BYTES", 10)
    with disk.failing(Fault(errno.ENOSPC, operations=frozenset({failing}))):
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                found.add([line(3)])
    found.add([line(3)])
    found.settled(line(3))
    found.add([line(4)])
    found.close()
    producers = standing(path, 50).producers
    assert {name: place.tuples for name, place in producers.items()} == {
        "p0": 10,
        "p1": 20,
        "p2": 30,
        "p": 50,
    }


def test_a_line_that_was_half_written_spoils_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.jsonl"
    found = filled(path, 1)
    with path.open("ab") as behind:
        behind.write(b"0000 half a li")  # as much as there was room for

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            found.add([line(1)])
    found.add([line(1)])
    found.close()
    assert standing(path, 20).save == {"next_id": 20}


def test_lines_that_the_log_may_have_survive_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log reported that it failed, but has the tuples: their line must still be there."""
    path = tmp_path / "ledger.jsonl"
    found = filled(path, 1)
    found.add([line(1)])
    monkeypatch.setattr(ledger, "_COMPACT_BYTES", 10)
    found.add([line(1)])
    found.close()
    assert standing(path, 20).save == {"next_id": 20}
