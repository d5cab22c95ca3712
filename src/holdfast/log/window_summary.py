"""What the window states in a log amount to: how far back a recovery would have to go.

Every block of window states has, beside the states, a few numbers its owner wrote with it: how
many windows were open, from which time on states and input were needed, and how long it
expected a recovery to take. The newest block's count.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.core.frame import Kind
from holdfast.log.block import LogBlock
from holdfast.log.payload import is_window


@dataclass(frozen=True, slots=True)
class WindowSummary:
    """Continuous checkpoints, as the log has them.

    states        window states in the whole log.
    open_windows  how many windows were open when the newest was written.
    extent_from   the time of the oldest state that is needed.
    extent        q: states and results in the log since then.
    replay_from   the oldest input that is needed.
    replay        u: how many tuples that was.
    recovery_s    how long the owner expected a recovery to take.
    """

    states: int
    time: int
    open_windows: int
    extent_from: int
    extent: int
    replay_from: int
    replay: int
    recovery_s: float


@dataclass(slots=True)
class WindowCounter:
    """Goes over the blocks of a log, in order."""

    _frames: int = 0
    _states: int = 0
    _newest: LogBlock | None = None
    _places: list[tuple[int, int]] = field(default_factory=list)

    def add(self, block: LogBlock) -> None:
        if block.kind == Kind.STABLE:
            self._frames += block.tuples
        elif is_window(block.kind):
            if self._newest is not None and block.stime_min < self._newest.stime_min:
                # The owner went back to an older state: its new times come after these.
                self._places = [each for each in self._places if each[0] < block.stime_min]
            self._places.append((block.stime_min, self._frames))
            self._frames += block.tuples
            self._states += block.tuples
            self._newest = block

    def summary(self) -> WindowSummary | None:
        """None if there are no window states."""
        if self._newest is None:
            return None
        with pa.ipc.open_stream(self._newest.payload) as stream:
            told = stream.schema.metadata or {}
        numbers = {name: int(told.get(name.encode(), 0)) for name in _NAMES}
        extent_from = numbers["extent_from"]
        at = bisect_left(self._places, (extent_from, 0))
        before = self._places[at][1] if at < len(self._places) else self._frames
        return WindowSummary(
            self._states,
            self._newest.stime_min,
            numbers["open_windows"],
            extent_from,
            self._frames - before,
            numbers["replay_from"],
            numbers["replay"],
            numbers["recovery_us"] / 1e6,
        )


_NAMES = ("open_windows", "extent_from", "replay_from", "replay", "recovery_us")
