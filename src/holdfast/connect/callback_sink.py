"""Results handed to a Python function."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pyarrow as pa

from holdfast.connect.sink import Position, Sink, Writer
from holdfast.core.frame import Why
from holdfast.errors import InputError
from holdfast.stream_events import Boundary, Tuples, Undo


@dataclass(frozen=True)
class CallbackSink(Sink):
    """A Python function."""

    function: Callable[..., object]
    tentative: bool = False

    def open(self, output: str, schema: pa.Schema, position: Position | None) -> Writer:
        return EventWriter(self.function) if self.tentative else CallbackWriter(self.function)

    def __str__(self) -> str:
        return f"function {getattr(self.function, '__name__', self.function)}"


def call(function: Callable[..., object], tentative: bool = False) -> CallbackSink:
    """Call ``function`` with each Arrow table of new tuples.

    After a crash, tuples since the last checkpoint come again; ``seq``, the tuple id, tells.
    With ``tentative`` it is called with every event, as a ``Client`` has them: ``Tuples``, stable
    or tentative, ``Undo`` and ``Boundary``. A ``View`` makes of them how the output stands.
    """
    return CallbackSink(function, tentative)


def function_at(place: str) -> Callable[..., object]:
    """The function that ``alerts.py:show`` names."""
    path, _, name = place.rpartition(":")
    file = Path(path)
    if not path or not name.isidentifier():
        raise InputError(f"write it as FILE.py:FUNCTION, e.g. alerts.py:show; got {place!r}")
    if not file.is_file():
        raise InputError(f"there is no file {path!r}; name the Python file with the function")
    found = runpy.run_path(str(file)).get(name)
    if not callable(found):
        raise InputError(f"{path!r} defines no function {name!r}")
    return cast("Callable[..., object]", found)


class CallbackWriter(Writer):
    """Calls the function."""

    def __init__(self, function: Callable[[pa.Table], object]) -> None:
        self._function = function

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._function(table)


class EventWriter(Writer):
    """Calls the function with every event."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._function(Tuples(True, table["seq"][0].as_py(), table))

    def write_tentative(self, table: pa.Table, why: Why | None) -> None:
        if table.num_rows:
            self._function(Tuples(False, 0, table, why))

    def undo(self, below_stime: int) -> None:
        self._function(Undo(below_stime))

    def boundary(self, stime: int) -> None:
        self._function(Boundary(stime))
