"""The simulated disk of one process: logs, the recovery record and the state it may come with.

It does one thing after the other, as the product's disk thread does, and takes of what it is
given what the product takes (``core.keeping``). An order takes a while. When the process crashes
meanwhile, any prefix of its steps may have happened: a part of the frames (a torn frame is cut
when the log is opened, so whole frames remain), all frames without the record, or everything
though nobody was told. A full disk fails orders: of one log it takes all or nothing, but some logs
may have been written before there was no more room; trimming and old contents are unharmed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random

from holdfast.core.effects import Append, ApplyCheckpoint, KeepEnd
from holdfast.core.events import LoggedStream, RecoveryRecord
from holdfast.core.frame import Header, Kind, StreamFrame
from holdfast.core.keeping import WINDOWS, LogGap, in_order, lacking, replaces, standing
from holdfast.core.records import ConsumersRecord, StreamEnd
from holdfast.simulation.packed_states import Kept, PackedStates

MARKS = (Kind.BOUNDARY, Kind.SKIP)


@dataclass(frozen=True)
class Write:
    """What an order wants on disk: frames, then the record with its state."""

    frames: tuple[tuple[str, tuple[StreamFrame, ...]], ...]
    begins: tuple[tuple[str, int], ...]
    record: RecoveryRecord | None
    packed: Kept | None

    @classmethod
    def of(cls, order: Append | ApplyCheckpoint, packed: Kept | None) -> Write:
        """``packed`` is what is kept of the state with the record."""
        if isinstance(order, Append):
            return cls(order.frames, order.begins, order.record, packed)
        queues = order.checkpoint.queues
        if isinstance(order.checkpoint.state, LoggedStream):
            # A piece of the other copy's log, with the window states.
            queues = (order.checkpoint.state, *queues)
        queues = tuple(in_order(queues))
        return cls(
            tuple((queue.stream, queue.frames) for queue in queues),
            tuple((queue.stream, queue.first_id) for queue in queues),
            order.checkpoint.record,
            packed,
        )


class Disk:
    """What survives a crash."""

    def __init__(self, random: Random, longest_append_us: int = 5_000) -> None:
        self.full = False
        # How often a crash left a part of an append.
        self.torn = 0
        self.record: RecoveryRecord | None = None
        self.packed = PackedStates()
        # Which lives of the consumers count.
        self.consumers: ConsumersRecord | None = None
        # Where its streams ended, if the last life has ended in order.
        self.ended: tuple[StreamEnd, ...] | None = None
        self._random = random
        self._longest_append_us = longest_append_us
        self._frames: dict[str, list[StreamFrame]] = {}
        self._trimmed_below: dict[str, int] = {}
        self._under_way: Write | None = None

    @property
    def writing(self) -> bool:
        return self._under_way is not None

    def begin(self, write: Write) -> int:
        """Start to write; returns how long it takes."""
        self._under_way = write
        return 500 + int(self._random.random() * self._longest_append_us)

    def finish(self, write: Write) -> tuple[str, ...] | None:
        """What is under way is over; None if it succeeded, else the logs that took their frames."""
        self._under_way = None
        streams = len(write.frames)
        room = self._random.randrange(max(1, streams)) if self.full else streams
        taken: list[str] = []
        try:
            self._take(write, room, taken)
        except LogGap:
            return tuple(taken)
        if self.full:
            if write.packed is not None and self._is_newer(write):
                self.packed.fail(write.packed)
            return tuple(taken)
        self._keep_record(write)
        return None

    def _take(self, write: Write, streams: int, taken: list[str], torn: bool = False) -> bool:
        """Write the frames of the first logs, the last of them perhaps in part; whether whole."""
        begins: dict[str, int] = {}
        for stream, first_id in write.begins:
            begins.setdefault(stream, first_id)
        for stream, frames in write.frames[:streams]:
            log = self._log(stream)
            if begins.get(stream, 0) > self._next_id(stream):
                self._skip(stream, begins[stream])
            fresh = list(lacking(frames, self._next_id(stream)))
            kept = len(fresh)
            if torn and self._random.random() < 0.5:
                kept = self._random.randrange(len(fresh) + 1)
            log.extend(_without(frame, skip) for frame, skip in fresh[:kept])
            if kept < len(fresh):
                return False
            taken.append(stream)
        return True

    def _skip(self, stream: str, first_id: int) -> None:
        """Go on after a gap: everyone has what lies between."""
        self._log(stream).append(StreamFrame(Header(Kind.SKIP, first_id)))

    def _keep_record(self, write: Write) -> None:
        if self._is_newer(write):
            self.record = write.record
            if write.packed is not None:
                self.packed.keep(write.packed)

    def _is_newer(self, write: Write) -> bool:
        return write.record is not None and replaces(write.record, self.record)

    def begin_life(self) -> tuple[StreamEnd, ...] | None:
        """Another life begins, and what was noted of the last one goes."""
        ended, self.ended = self.ended, None
        return ended

    def keep_end(self, order: KeepEnd) -> None:
        """A full disk has room for what is small, now and then."""
        if not (self.full and self._random.random() < 0.5):
            self.ended = order.ends
            self.packed.note()

    def start_over(self) -> None:
        """What is kept is put where nobody looks for it."""
        self.record, self.packed = None, PackedStates()

    def log_end(self, stream: str) -> StreamEnd:
        """Where a log ends, as one that is to go on from there reads it."""
        marks = [f.header for f in self._log(stream) if f.header.kind is Kind.BOUNDARY]
        boundary = marks[-1].stime_min if marks else 0
        return StreamEnd(stream, self._next_id(stream), boundary)

    def crash(self) -> None:
        """Keep a random prefix of what is under way."""
        write, self._under_way = self._under_way, None
        if write is None or self.full or self._random.random() < 0.3:
            return
        self.torn += 1
        try:
            whole = self._take(write, len(write.frames), [], torn=True)
        except LogGap:
            return
        if whole and self._random.random() < 0.5:
            self._keep_record(write)
            self.torn -= 1  # all of it

    def trim(self, stream: str, below_id: int, windows_from: int = 0) -> None:
        """Drop what is below an id, except the last boundary; never beyond the log's end.

        Window states of ``windows_from`` and later stay.
        """
        log = self._log(stream)
        if not log:
            return
        below_id = min(below_id, self._next_id(stream))
        last = max((at for at, each in enumerate(log) if each.header.kind in MARKS), default=-1)
        log[:] = [
            frame
            for at, frame in enumerate(log)
            if at == last
            or (
                frame.header.stime_min >= windows_from
                if frame.header.kind in WINDOWS
                else frame.header.next_id > below_id
            )
        ]
        self._trimmed_below[stream] = max(below_id, self._trimmed_below.get(stream, 0))

    def open(self, stream: str, complete: bool = False) -> LoggedStream:
        """What a restarted process finds; ``complete`` adds the boundary a crash cut off."""
        log = self._log(stream)
        if complete and log and log[-1].header.kind is Kind.STABLE:
            promised = [one.header for one in log if one.header.kind is Kind.BOUNDARY]
            stime = promised[-1].stime_min if promised else 0
            log.append(StreamFrame(Header(Kind.BOUNDARY, self._next_id(stream), 0, stime, stime)))
        found = standing(stream, self._trimmed_below.get(stream, 0), log)
        if found is None:
            return LoggedStream(stream, 0, ())
        data = [frame.header for frame in found.frames if frame.header.kind is Kind.STABLE]
        return replace(found, first_id=data[0].first_id) if data else found

    def windows(self, stream: str) -> Iterable[StreamFrame]:
        """The window states of a log, in the order they were written."""
        return [frame for frame in self._log(stream) if frame.header.kind in WINDOWS]

    def end(self, stream: str) -> StreamFrame | None:
        """The last frame of a log, by which a later piece knows where to begin."""
        log = self._log(stream)
        return log[-1] if log else None

    def piece(
        self, stream: str, record: RecoveryRecord, after: StreamFrame | None
    ) -> LoggedStream | None:
        """The log after a frame, or from what ``record`` needs; None if that is gone."""
        log = self._log(stream)
        at = next((n + 1 for n, frame in enumerate(log) if frame is after), None)
        if at is None:
            times = [(f.header.stime_min, n) for n, f in enumerate(log) if f.header.kind in WINDOWS]
            if record.extent < record.boundary and not any(t <= record.extent for t, _ in times):
                return None
            at = min((n for time, n in times if time >= record.extent), default=len(log))
        frames: list[StreamFrame] = []
        for frame in log[at:]:
            if frame.header.kind is Kind.SKIP:
                frames = [each for each in frames if each.header.kind in WINDOWS]
            else:
                frames.append(frame)
        stable = [frame.header for frame in frames if frame.header.kind not in WINDOWS]
        first_id = stable[0].first_id if stable else self._next_id(stream)
        return LoggedStream(stream, first_id, tuple(frames))

    def frame_count(self) -> int:
        """How many frames are kept, boundaries too."""
        return sum(len(log) for log in self._frames.values())

    def sizes(self) -> tuple[tuple[str, int], ...]:
        """How much of each stream is kept, as if every block had a thousand bytes."""
        return tuple(
            (stream, 1_000 * sum(frame.block is not None for frame in log))
            for stream, log in self._frames.items()
        )

    def _next_id(self, stream: str) -> int:
        for frame in reversed(self._log(stream)):
            if frame.header.kind not in WINDOWS:
                return frame.header.next_id
        return self._trimmed_below.get(stream, 0)

    def _log(self, stream: str) -> list[StreamFrame]:
        return self._frames.setdefault(stream, [])


def _without(frame: StreamFrame, skip: int) -> StreamFrame:
    """The frame without its first tuples."""
    if not skip:
        return frame
    header, rows = frame.header, frame.block[skip:]  # type: ignore[index]
    header = replace(
        header, first_id=header.first_id + skip, count=header.count - skip, stime_min=rows[0][0]
    )
    return StreamFrame(header, rows)
