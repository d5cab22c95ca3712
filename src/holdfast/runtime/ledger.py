"""The ledger of an entry point: whose tuples got which ids.

Before tuples go into the log, a line with their ids, their producer's place and their source's
position goes into the ledger and is synced. After a crash the log says how far it got, and
that decides which lines count: those whose ids it has. So what the entry point knows of its
producers and its source is always exactly what is in its log, though the two are two files.

    {"first_id": 100, "count": 50, "save": {...},
     "producer": "p", "epoch": 1, "sequence": 3, "tuples": 150}

That a producer opened its name is a line without tuples.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.producers import ProducerPlace
from holdfast.errors import StateError
from holdfast.runtime.durable import make_private, open_private, write_whole

_COMPACT_BYTES = 4 << 20


@dataclass(frozen=True)
class Line:
    """One batch on its way into the log.

    save      what the inlet needs to go on after it.
    epoch     which life of the producer's name sent it;
    sequence  the producer's number of the batch; tuples how many the producer has sent with it.
    """

    first_id: int
    count: int
    save: dict[str, Any]
    producer: str | None = None
    sequence: int = 0
    tuples: int = 0
    epoch: int = 0


@dataclass
class Standing:
    """What counts: the inlet's last state and the producers' places."""

    save: dict[str, Any] | None = None
    producers: dict[str, ProducerPlace] = field(default_factory=dict)

    def take(self, line: Line) -> None:
        self.save = line.save
        if line.producer is not None:
            self.producers[line.producer] = ProducerPlace(line.epoch, line.sequence, line.tuples)


class Ledger:
    """The ledger file; used by the disk's thread once it is open."""

    def __init__(self, path: Path, next_id: int) -> None:
        """Open and drop the lines that the log, which is at ``next_id``, never got."""
        self._path = path
        self.standing = Standing()
        for line in self._read():
            if line.first_id + line.count <= next_id:
                self.standing.take(line)
        saved = self.standing.save
        if (saved is None and next_id) or (saved is not None and saved["next_id"] != next_id):
            raise StateError(
                f"{path} ends at id {saved and saved['next_id']}, but the log beside it is at "
                f"{next_id}: one of them was replaced or lost; put it back"
            )
        self._compact()

    def add(self, lines: Sequence[Line]) -> None:
        """Write lines and sync them; the log comes after."""
        if not lines:
            return
        if self._file.tell() > _COMPACT_BYTES:
            self._file.close()
            self._compact()
        data = "".join(json.dumps(asdict(line)) + "\n" for line in lines)
        self._file.write(data.encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def settled(self, line: Line) -> None:
        """The log has the line's tuples."""
        self.standing.take(line)

    def close(self) -> None:
        self._file.close()

    def _read(self) -> list[Line]:
        if not self._path.exists():
            return []
        lines = []
        for text in self._path.read_bytes().split(b"\n"):
            try:
                found = json.loads(text)
            except ValueError:
                continue  # torn: its tuples never went into the log
            lines.append(Line(**found))
        return lines

    def _compact(self) -> None:
        """Write only what still counts, in place of everything."""
        saved = self.standing.save
        lines = []
        if saved is not None:
            end = int(saved["next_id"])
            lines = [
                Line(end, 0, saved, name, place.sequence, place.tuples, place.epoch)
                for name, place in self.standing.producers.items()
            ] or [Line(end, 0, saved)]
        make_private(self._path.parent)
        data = "".join(json.dumps(asdict(line)) + "\n" for line in lines)
        write_whole(self._path, data.encode())
        self._file = open_private(self._path, "ab")
