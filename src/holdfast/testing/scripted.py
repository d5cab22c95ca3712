"""Sources for tests that fail and wait where the data says.

load = scripted(
    [{"at": at(0), "value": 1}],
    Crash(),                       # the run ends here, the first time it gets here
    [{"at": at(1), "value": 2}],
    Pause(until=lambda: healed),   # nothing more until then
    [{"at": at(9), "value": 3}],
)
with pytest.raises(SourceCrashed):
    holdfast.run(network, {"load": load}, state=directory)
holdfast.run(network, {"load": load}, state=directory)  # goes on after the crash
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from holdfast.connect.source import Chunk, Position, Reader, Source
from holdfast.errors import InputError
from holdfast.times import Duration


class SourceCrashed(Exception):
    """A scripted source has come to a crash."""


@dataclass(frozen=True)
class Crash:
    """The source fails here; each does once, however often the source is opened again."""

    message: str = "the script says so"


@dataclass(frozen=True)
class Pause:
    """The source has nothing more until so many seconds have passed, or a condition holds."""

    until: float | Callable[[], bool]


Item: TypeAlias = pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]] | Crash | Pause


@dataclass(frozen=True)
class ScriptedSource(Source):
    """What ``scripted`` returns; it remembers which crashes it has had."""

    items: tuple[Item, ...]
    crashed: set[int] = field(default_factory=set, compare=False)

    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        return _ScriptedReader(self, schema, (position or {}).get("items", 0))

    def __str__(self) -> str:
        return "script"


def scripted(*items: Item, lateness: Duration | int | None = None) -> ScriptedSource:
    """A source of these rows, with crashes and pauses between them, that then ends.

    Rows are Arrow tables, record batches, or lists of dicts; each item is one chunk.
    """
    for item in items:
        if isinstance(item, str) or not isinstance(
            item, pa.Table | pa.RecordBatch | Sequence | Crash | Pause
        ):
            raise InputError(f"expected rows, a Crash or a Pause, got {item!r}")
    return ScriptedSource(lateness, items)


class _ScriptedReader(Reader):
    def __init__(self, source: ScriptedSource, schema: pa.Schema, taken: int) -> None:
        self._source = source
        self._schema = schema
        self._taken = taken
        self._paused_at: float | None = None

    def read(self) -> Chunk | None:
        while self._taken < len(self._source.items):
            item = self._source.items[self._taken]
            if isinstance(item, Pause):
                if not self._is_over(item):
                    return None
                self._paused_at = None
            elif isinstance(item, Crash):
                if self._taken not in self._source.crashed:
                    self._source.crashed.add(self._taken)
                    raise SourceCrashed(item.message)
            else:
                self._taken += 1
                return Chunk(self._rows(item))
            self._taken += 1
        self.ended = True
        return None

    def _is_over(self, pause: Pause) -> bool:
        if callable(pause.until):
            return pause.until()
        if self._paused_at is None:
            self._paused_at = time.monotonic()
        return time.monotonic() - self._paused_at >= pause.until

    def _rows(self, item: pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]]) -> pa.Table:
        if isinstance(item, pa.RecordBatch):
            return pa.Table.from_batches([item])
        if isinstance(item, pa.Table):
            return item
        return pa.Table.from_pylist([dict(row) for row in item], schema=self._schema)

    @property
    def position(self) -> Position:
        return {"items": self._taken}
