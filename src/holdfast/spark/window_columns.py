"""Takes ``F.window("stime", "10 seconds")`` and ``F.session_window`` for windows of ours."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pyspark.sql import Column

from holdfast.errors import NetworkError
from holdfast.times import microseconds
from holdfast.windows import SessionWindow, TimeWindow, session_window, window

_NO_START = ("0 second", "0 seconds")


def window_of(column: Column, times: Collection[str]) -> TimeWindow | SessionWindow | None:
    """The window a column stands for; None if it is a plain column.

    ``times`` are the columns that hold the tuple time.
    """
    found = _call(column)
    if found is None:
        return None
    name, (time, *lengths) = found
    if time not in times:
        raise NetworkError(
            f"groupBy: F.{name} over {time!r}: windows are over the tuple time; write "
            f"F.{name}('stime', ...), or holdfast.{name}(...), and give the source of the stream "
            f"stime={time!r} if that column is its time"
        )
    if name == "session_window":
        return session_window(lengths[0])
    size, advance, start = (*lengths, *(lengths[0], "0 second")[len(lengths) - 1 :])
    if start not in _NO_START and microseconds(start, least=0):
        raise NetworkError(f"groupBy: windows are aligned to the epoch; startTime {start!r} is not")
    return window(size, advance)


def _call(column: Column) -> tuple[str, list[str]] | None:
    """The name of a window function and its arguments."""
    spark_column: Any = column  # its type does not tell of the JVM's side
    node = spark_column._jc.node()
    kind = node.getClass().getSimpleName()
    if kind == "Alias" and _is_window(node.child()):
        raise NetworkError("groupBy: a window has its own column, window; rename that afterwards")
    if kind != "UnresolvedFunction" or not _is_window(node):
        return None
    arguments = node.arguments()
    texts = [str(arguments.apply(i).sql()).strip("'`") for i in range(arguments.size())]
    return str(node.functionName()), texts


def _is_window(node: Any) -> bool:
    return node.getClass().getSimpleName() == "UnresolvedFunction" and str(node.functionName()) in (
        "window",
        "session_window",
    )
