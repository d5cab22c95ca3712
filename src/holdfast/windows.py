"""The windows a stream can be grouped by.

Time windows are aligned to the epoch and half open: a window covers ``start <= stime < end``.
It closes when the boundary reaches its end; the tuple time of its result is its last instant,
``end - 1 µs``, so that everything an engine emits when it advances to boundary B is older
than B. Count windows close with the tuple that fills them and take that tuple's time.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import NetworkError
from holdfast.times import Duration, microseconds, show_duration


@dataclass(frozen=True)
class TimeWindow:
    """Windows of ``size`` microseconds, a new one every ``advance``."""

    size: int
    advance: int

    def __str__(self) -> str:
        if self.size == self.advance:
            return f"window {show_duration(self.size)}"
        return f"window {show_duration(self.size)} every {show_duration(self.advance)}"


@dataclass(frozen=True)
class CountWindow:
    """Windows of ``size`` tuples of one group, a new one every ``advance`` tuples."""

    size: int
    advance: int

    def __str__(self) -> str:
        every = "" if self.size == self.advance else f" every {self.advance}"
        return f"window of {self.size} tuples{every}"


@dataclass(frozen=True)
class SessionWindow:
    """Windows that end after ``gap`` microseconds without a tuple of the group."""

    gap: int

    def __str__(self) -> str:
        return f"session with gap {show_duration(self.gap)}"


Window = TimeWindow | CountWindow | SessionWindow


def window(size: Duration | None = None, advance: Duration | None = None) -> TimeWindow:
    """A tumbling window over tuple time, or a sliding one when ``advance`` is given."""
    if size is None:
        raise NetworkError("window: a window needs a size; write window('10 seconds')")
    size_us = microseconds(size)
    advance_us = size_us if advance is None else microseconds(advance)
    if advance_us > size_us:
        raise NetworkError(
            f"a window of {show_duration(size_us)} cannot advance by more than its size, got "
            f"{show_duration(advance_us)}; make the window longer or filter the stream first"
        )
    return TimeWindow(size_us, advance_us)


def count_window(size: int | None = None, advance: int | None = None) -> CountWindow:
    """A window over ``size`` tuples of each group, moving by ``advance`` tuples."""
    if size is None:
        raise NetworkError("count_window: a window needs a size; write count_window(10)")
    step = size if advance is None else advance
    if size < 1 or step < 1:
        raise NetworkError(
            f"a count window needs a size and an advance of at least 1 tuple, got {size}, {step}"
        )
    return CountWindow(size, step)


def session_window(gap: Duration) -> SessionWindow:
    """A window that closes once ``gap`` has passed without a tuple of the group."""
    return SessionWindow(microseconds(gap))
