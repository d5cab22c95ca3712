"""Results handed to a Python function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from holdfast.connect.sink import Position, Sink, Writer


@dataclass(frozen=True)
class CallbackSink(Sink):
    """A Python function."""

    function: Callable[[pa.Table], object]

    def open(self, output: str, schema: pa.Schema, position: Position | None) -> Writer:
        return CallbackWriter(self.function)

    def __str__(self) -> str:
        return f"function {getattr(self.function, '__name__', self.function)}"


def call(function: Callable[[pa.Table], object]) -> CallbackSink:
    """Call ``function`` with each Arrow table of new tuples.

    After a crash, tuples since the last checkpoint come again; ``seq``, the tuple id, tells.
    """
    return CallbackSink(function)


class CallbackWriter(Writer):
    """Calls the function."""

    def __init__(self, function: Callable[[pa.Table], object]) -> None:
        self._function = function

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._function(table)
