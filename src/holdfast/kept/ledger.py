"""The ledger of an entry point: whose tuples got which ids.

Before tuples go into the log, a line with their ids, their producer's place and their source's
position goes into the ledger and is synced. After a crash the log says how far it got, and
that decides which lines count: those whose ids it has. So what the entry point knows of its
producers and its source is always exactly what is in its log, though the two are two files.

    {"first_id": 100, "count": 50, "save": {...},
     "producer": "p", "epoch": 1, "sequence": 3, "tuples": 150}

That a producer opened its name is a line without tuples. Every line has its checksum in front.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from holdfast import disk
from holdfast.core.producers import ProducerPlace
from holdfast.core.source_time import FAR
from holdfast.durable import (
    Damaged,
    make_private,
    open_line,
    seal_line,
    write_whole,
)
from holdfast.errors import StateError

_COMPACT_BYTES = 4 << 20
_WAY_OUT = (
    "It says which of its producers' tuples are in the log; without it they would be taken twice. "
    "If there is no copy, move the whole directory away: the producers then begin anew, and so "
    "must everything that reads from here"
)


@dataclass(frozen=True)
class LedgerLine:
    """One batch on its way into the log.

    save      what the inlet needs to go on after it.
    place     how far the producer is with it, as fields: epoch, sequence, tuples and its time.
    """

    first_id: int
    count: int
    save: dict[str, Any]
    producer: str | None = None
    epoch: int = 0
    sequence: int = 0
    tuples: int = 0
    newest: int = -FAR
    promised: int = -FAR

    @property
    def place(self) -> ProducerPlace:
        return ProducerPlace(self.epoch, self.sequence, self.tuples, self.newest, self.promised)


@dataclass
class LedgerState:
    """What counts: the inlet's last state and the producers' places."""

    save: dict[str, Any] | None = None
    producers: dict[str, ProducerPlace] = field(default_factory=dict)

    def take(self, line: LedgerLine) -> None:
        self.save = line.save
        if line.producer is not None:
            self.producers[line.producer] = line.place


class Ledger:
    """The ledger file; used by the disk's thread once it is open.

    The file starts with the number of lines that were written with it as a whole. Those are
    never torn; of the lines added later, the last ones may be.
    """

    def __init__(self, path: Path, next_id: int) -> None:
        """Open and drop the lines that the log, which is at ``next_id``, never got."""
        self._path = path
        self.standing = LedgerState()
        # Lines that were added and whose tuples the log has not got yet.
        self._unsettled: list[LedgerLine] = []
        self._file: BinaryIO | None = None
        self._file_bytes = 0
        for line in self._read():
            if line.first_id + line.count <= next_id:
                self.standing.take(line)
        saved = self.standing.save
        if (saved is None and next_id) or (saved is not None and saved["next_id"] != next_id):
            raise StateError(
                f"{path} ends at id {saved and saved['next_id']}, but the log beside it is at "
                f"{next_id}: one of them was replaced, damaged or lost; put it back"
            )
        make_private(path.parent)
        self._start_anew()

    def add(self, lines: Sequence[LedgerLine]) -> None:
        """Write lines and sync them; the log comes after.

        A file that failed once is not trusted: what it did not write, or only seemed to, is
        written into a new one.
        """
        if not lines:
            return
        if self._file is None or self._file_bytes > _COMPACT_BYTES:
            self._start_anew()
        assert self._file is not None
        data = b"".join(_sealed(line) for line in lines)
        try:
            self._file.write(data)
            disk.sync(self._file)
        except OSError:
            self.close()
            raise
        self._file_bytes += len(data)
        self._unsettled = [*self._unsettled, *lines]

    def settled(self, line: LedgerLine) -> None:
        """The log has the line's tuples."""
        self.standing.take(line)
        self._unsettled = []  # there is never more than one append under way

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # what it could not write is written elsewhere
                file.close()

    def _read(self) -> list[LedgerLine]:
        if not self._path.exists():
            return []
        texts = self._path.read_bytes().split(b"\n")
        opened = [open_line(text) for text in texts[:-1]]  # a line without its end is torn
        if not opened or opened[0] is None:
            raise Damaged(self._path, f"its first line. {_WAY_OUT}")
        good = [number for number, text in enumerate(opened) if text is not None]
        whole = 1 + int(json.loads(opened[0])["whole"])
        # A crash tears the lines it comes upon; after those there are none.
        if good[-1] + 1 < whole or len(good) <= good[-1]:
            bad = next(place for place, number in enumerate([*good, -1]) if place != number)
            raise Damaged(self._path, f"line {bad + 1}. {_WAY_OUT}")
        return [LedgerLine(**json.loads(text)) for text in opened[1:] if text is not None]

    def _start_anew(self) -> None:
        """A file with only what still counts, in place of everything."""
        saved = self.standing.save
        lines = []
        if saved is not None:
            end = int(saved["next_id"])
            lines = [
                LedgerLine(end, 0, saved, name, *astuple(place))
                for name, place in self.standing.producers.items()
            ] or [LedgerLine(end, 0, saved)]
        lines += self._unsettled
        data = seal_line(json.dumps({"whole": len(lines)})) + b"".join(map(_sealed, lines))
        # Until the new file is in its place, the old one is: nothing is lost if there is no room.
        self.close()
        write_whole(self._path, data)
        self._file, self._file_bytes = disk.open_file(self._path, "ab"), len(data)


def _sealed(line: LedgerLine) -> bytes:
    return seal_line(json.dumps(asdict(line)))
