"""The appender: one append to disk at a time, everything that came meanwhile in the next.

Theory of operation. Stable frames and boundaries are collected while an append is under way,
and go out together in the next one (group commit). Now and then a recovery record goes with
them; it describes the stable state after the newest frames of the same append, so it is never
on disk without them. When the append with the record is done, what the record no longer needs
may be acknowledged: never before. An append that fails is tried again after a pause, in front
of what has come since; not for the logs that took their part, though: a log that has room would
get the same window states again with every attempt, as long as another's disk is full.

Tentative frames are not appended: a replica that crashes has nobody to correct them for.
"""

from __future__ import annotations

from holdfast.core.effects import Append, Effect
from holdfast.core.events import Appended, AppendFailed, RecoveryRecord
from holdfast.core.frame import Kind
from holdfast.core.messages import StreamFrame
from holdfast.core.records import LoggedStream

DURABLE = (Kind.STABLE, Kind.BOUNDARY, Kind.WINDOW_OPEN, Kind.WINDOW_CHECK)


class Appender:
    """Frames on their way to the logs of one replica."""

    def __init__(self, retry_us: int, record_interval_us: int, first_append: int = 1) -> None:
        # The newest record, and the state it tells of.
        self._record: RecoveryRecord | None = None
        self._state: object = None
        # The newest record on disk: all it needs of the log is there, too.
        self.durable: RecoveryRecord | None = None
        self.retry_at = 0
        self._retry_us = retry_us
        self._record_interval_us = record_interval_us
        self._recorded_at = -record_interval_us
        self._pending: dict[str, list[StreamFrame]] = {}
        self._begins: dict[str, int] = {}
        self._in_flight: Append | None = None
        self.next_append = first_append

    @property
    def under_way(self) -> int | None:
        """The append that is being written."""
        return None if self._in_flight is None else self._in_flight.append

    def add(self, stream: str, frames: tuple[StreamFrame, ...]) -> None:
        """Take new frames of a stream."""
        durable = [frame for frame in frames if frame.header.kind in DURABLE]
        if durable:
            self._pending.setdefault(stream, []).extend(durable)

    def add_queue(self, queue: LoggedStream) -> None:
        """Take a whole output queue: the log may lack some of it, and what was before it.

        An earlier life may have ended, or slept, while the disk was full.
        """
        self.add(queue.stream, queue.frames)
        self.go_on_at(queue.stream, queue.first_id)

    def go_on_at(self, stream: str, first_id: int) -> None:
        """A log that ends before this id goes on there: everybody has what lies between."""
        self._begins[stream] = max(first_id, self._begins.get(stream, 0))

    def takes_record(self, now: int) -> bool:
        """Whether a record that is described now would be written at once."""
        due = now - self._recorded_at >= self._record_interval_us
        return due and self._in_flight is None and now >= self.retry_at

    @property
    def waiting(self) -> tuple[RecoveryRecord, object] | None:
        """The newest record, and its state, if it is not on its way to the disk yet."""
        return None if self._record is None else (self._record, self._state)

    def describe(self, record: RecoveryRecord, state: object) -> None:
        """This is where the stable state stands after all frames taken so far."""
        self._record, self._state = record, state

    def handle(self, event: Appended | AppendFailed, now: int) -> tuple[tuple[str, int], ...]:
        """An append ended; returns the (stream, id) that may be acknowledged now."""
        append = self._in_flight
        if append is None or append.append != event.append:
            return ()
        self._in_flight = None
        if isinstance(event, Appended):
            self.durable = append.record or self.durable
            return () if append.record is None else append.record.inputs
        for stream, frames in append.frames:
            if stream not in event.taken:
                self._pending[stream] = [*frames, *self._pending.get(stream, ())]
        for stream, first_id in append.begins:
            if stream not in event.taken:
                self.go_on_at(stream, first_id)
        if self._record is None:
            self._record, self._state = append.record, append.state
        self._recorded_at = now - self._record_interval_us
        self.retry_at = now + self._retry_us
        return ()

    def flush(self, now: int) -> list[Effect]:
        """Start the next append if there is something to write and none is under way."""
        if self._in_flight is not None or now < self.retry_at:
            return []
        record, state = None, None
        if self._record is not None and now - self._recorded_at >= self._record_interval_us:
            record, state, self._recorded_at = self._record, self._state, now
            self._record, self._state = None, None
        if record is None and not self._pending:
            return []
        frames = tuple((stream, tuple(frames)) for stream, frames in self._pending.items())
        begins = tuple(self._begins.items())
        self._pending, self._begins = {}, {}
        self._in_flight = Append(self.next_append, frames, record, state, begins)
        self.next_append += 1
        return [self._in_flight]

    def last(self) -> list[Append]:
        """What waits, without a record: the replica goes, and what it emitted stays."""
        stream_kinds = (Kind.STABLE, Kind.BOUNDARY)
        frames = tuple(
            (stream, tuple(frame for frame in frames if frame.header.kind in stream_kinds))
            for stream, frames in self._pending.items()
        )
        begins = tuple(self._begins.items())
        self._pending, self._begins = {}, {}
        self.next_append += 1
        return [Append(self.next_append - 1, frames, None, begins=begins)] if frames else []
