"""The simulated disk of one process: logs, the recovery record and the state it may come with.

An append takes a while. When the process crashes meanwhile, any prefix of its steps may have
happened: a part of the frames (a torn frame is cut when the log is opened, so whole frames
remain), all frames without the record, or everything though nobody was told. A full disk
fails appends; trimming and old contents are unharmed.
"""

from __future__ import annotations

from random import Random

from holdfast.core.effects import Append
from holdfast.core.events import LoggedStream, RecoveryRecord
from holdfast.core.frame import Kind
from holdfast.core.messages import StreamFrame


class Disk:
    """What survives a crash."""

    def __init__(self, random: Random, longest_append_us: int = 5_000) -> None:
        self.full = False
        self.record: RecoveryRecord | None = None
        self.state: object = None
        self._random = random
        self._longest_append_us = longest_append_us
        self._frames: dict[str, list[StreamFrame]] = {}
        self._trimmed_below: dict[str, int] = {}
        self._under_way: Append | None = None
        self._state_under_way: object = None

    def begin(self, append: Append, state: object = None) -> int:
        """Start an append, with the state its record tells of; returns how long it takes."""
        self._under_way = append
        self._state_under_way = state
        return 500 + int(self._random.random() * self._longest_append_us)

    def finish(self, append: Append) -> bool:
        """The append's time is over; whether it succeeded."""
        self._under_way = None
        if self.full:
            return False
        for stream, frames in append.frames:
            self._log(stream).extend(frames)
        self._keep_record(append)
        return True

    def _keep_record(self, append: Append) -> None:
        if append.record is not None:
            self.record, self.state = append.record, self._state_under_way

    def crash(self) -> None:
        """Keep a random prefix of the append under way."""
        append, self._under_way = self._under_way, None
        if append is None or self.full or self._random.random() < 0.3:
            return
        for stream, frames in append.frames:
            kept = len(frames)
            if self._random.random() < 0.5:
                kept = self._random.randrange(len(frames) + 1)
            self._log(stream).extend(frames[:kept])
            if kept < len(frames):
                return
        if self._random.random() < 0.5:
            self._keep_record(append)

    def truncate(self, stream: str, next_id: int) -> None:
        """Drop data frames from an id on, and the marks that follow them."""
        log = self._log(stream)
        while log and log[-1].header.kind is Kind.STABLE and log[-1].header.next_id > next_id:
            log.pop()

    def trim(self, stream: str, below_id: int) -> None:
        """Drop what is below an id, except the last boundary; never beyond the log's end."""
        log = self._log(stream)
        if not log:
            return
        below_id = min(below_id, log[-1].header.next_id)
        keep = 0
        while keep < len(log) - 1 and log[keep].header.next_id <= below_id:
            keep += 1
        del log[:keep]
        self._trimmed_below[stream] = below_id

    def open(self, stream: str) -> LoggedStream:
        """What a restarted process finds."""
        frames = tuple(self._log(stream))
        data = [frame for frame in frames if frame.header.kind is Kind.STABLE]
        first_id = data[0].header.first_id if data else self._trimmed_below.get(stream, 0)
        return LoggedStream(stream, first_id, frames)

    def frame_count(self) -> int:
        """How many frames are kept, boundaries too."""
        return sum(len(log) for log in self._frames.values())

    def _log(self, stream: str) -> list[StreamFrame]:
        return self._frames.setdefault(stream, [])
