"""The disk of a process: a log for each stream it serves, and what a checkpoint adds.

One thread does all writing, so that the driver never waits for the disk. The steps of an append
are those of ``core.effects.Append``: frames, sync, record, report. A checkpoint of the other copy
is written in the same steps. What of it the logs have already, and which record replaces which,
says ``core.keeping``; how the state is kept, ``kept.state``.

A log that was cut short by a crash may end with tuples after its last boundary. The protocols
count from the last boundary. An entry point's log is completed with a boundary that promises
nothing new: those tuples have their ids for good. A replica computes the same tuples again,
under the same ids; the ones the log has are not written twice.

Window states (``core.continuous``) lie between the tuples. A trim says which of them are still
needed.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.blocks import Block, Loader, Memory
from holdfast.core.effects import Append, ApplyCheckpoint, KeepEnd, TrimLog
from holdfast.core.events import (
    Appended,
    AppendFailed,
    CheckpointApplied,
    CheckpointFailed,
    Event,
    LoggedStream,
    RecoveryRecord,
)
from holdfast.core.frame import Header, Kind
from holdfast.core.keeping import in_order, lacking, standing
from holdfast.core.messages import StreamFrame
from holdfast.core.records import Pieces, StreamEnd
from holdfast.errors import StateError
from holdfast.frames import Frame, data_frame
from holdfast.log import LogError, LogOptions, StreamLog
from holdfast.log.payload import is_window

if TYPE_CHECKING:
    # Who keeps no state, such as an entry point, does not load the engine.
    from holdfast.kept.state import KeptState

KEPT_BYTES = 128 << 20
KEPT_IN_LOG = (Kind.STABLE, Kind.BOUNDARY, Kind.WINDOW_OPEN, Kind.WINDOW_CHECK)

OnProblem = Callable[[str, str | None], None]
_logger = logging.getLogger(__name__)


def _log_problem(key: str, problem: str | None) -> None:
    if problem is not None:
        _logger.warning("%s", problem)


Streams = Iterable[tuple[str, tuple[StreamFrame, ...]]]
_Order = Append | ApplyCheckpoint | TrimLog | KeepEnd | Callable[[], None] | None


@dataclass(frozen=True)
class Piece:
    """A part of a log, and the place where it ends."""

    logged: LoggedStream
    end_lsn: int


class StreamStore:
    """The logs of one process."""

    def __init__(
        self,
        directory: Path,
        schemas: Mapping[str, pa.Schema],
        options: LogOptions,
        post: Callable[[Event], None],
        kept: KeptState | None = None,
        before_append: Callable[[Append], None] | None = None,
        on_problem: OnProblem = _log_problem,
    ) -> None:
        """``kept`` is who keeps record and state; an entry point has none.

        ``on_problem`` is told what goes wrong beside appends, or that it is over.
        """
        self.directory = directory
        self.logs = {
            stream: StreamLog.open(directory / stream, schema, options=options)
            for stream, schema in schemas.items()
        }
        self._unchecked = set(self.logs)
        self._loaders = {stream: Loader(log) for stream, log in self.logs.items()}
        self._post = post
        self._kept = kept
        self._before_append = before_append
        self._on_problem = on_problem
        self._memory = Memory(KEPT_BYTES)
        # Times of window states in the logs, and where each begins.
        self._window_places: dict[str, list[tuple[int, int]]] = {}
        self._queue: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._orders = 0
        self._is_busy = False
        self._thread = threading.Thread(target=self._run, name="holdfast-disk", daemon=True)

    def check_reaches(self, next_ids: Mapping[str, int], state: Path) -> None:
        """StateError unless the logs go as far as ``state``, which goes on with these tuples.

        A log that was cut would leave a hole.
        """
        for stream, next_id in next_ids.items():
            log = self.logs[stream]
            if log.next_id < next_id:
                raise StateError(
                    f"{log.directory}: the log ends before tuple {log.next_id}, but the "
                    f"state in {state} goes on with tuple {next_id}: the log was cut. Put back "
                    f"the whole log; or remove both directories and let everything be computed "
                    f"anew, which works as long as the producers have all the input"
                )

    def start(self) -> None:
        self._thread.start()

    def put(self, order: Append | ApplyCheckpoint | TrimLog | KeepEnd) -> None:
        """Carry out an order, in order."""
        self._queue.put(order)

    def call(self, work: Callable[[], None]) -> None:
        """Do something else between two orders, in their thread."""
        self._queue.put(work)

    def close(self) -> None:
        """Finish what was ordered and close the logs."""
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(10.0)
        for loader in self._loaders.values():
            loader.close()
        for log in self.logs.values():
            log.close()
        if self._kept is not None:
            self._kept.close()

    @property
    def turn(self) -> int | None:
        """Which order is being carried out; None while there is none."""
        return self._orders if self._is_busy else None

    @property
    def sizes(self) -> Mapping[str, int]:
        return MappingProxyType({stream: log.size_bytes for stream, log in self.logs.items()})

    # -- opening ------------------------------------------------------------------------

    def ends(self) -> list[StreamEnd]:
        """Where the logs end."""
        return [
            StreamEnd(stream, log.next_id, log.last_boundary or 0)
            for stream, log in self.logs.items()
        ]

    def logged(self, stream: str, complete: bool) -> LoggedStream:
        """What a log holds; ``complete`` adds the boundary that a crash cut off."""
        log = self.logs[stream]
        if complete:
            # Its ledger is about to be written anew, by what the log has for good.
            log.check()
            self._unchecked.discard(stream)
        found = [
            self._found(stream, header, nbytes)
            for header, nbytes in log.headers()
            if not is_window(header.kind)
        ]
        if not complete:
            return standing(stream, log.first_id, found) or LoggedStream(stream, 0, ())
        boundary = log.last_boundary
        if boundary is not None and all(one.header.kind is not Kind.BOUNDARY for one in found):
            # Trimmed, with the segment it was in: it comes before all that is left.
            found.insert(0, _boundary(log.first_id, boundary))
        if found and found[-1].header.kind is not Kind.BOUNDARY:
            mark = _boundary(log.next_id, boundary or 0)
            log.append(Frame(mark.header))
            found.append(mark)
        return LoggedStream(stream, log.first_id, tuple(found))

    def _found(self, stream: str, header: Header, nbytes: int) -> StreamFrame:
        if not header.kind.is_data:
            return StreamFrame(header)
        return StreamFrame(header, Block(None, self._load(stream, header), nbytes))

    def _load(self, stream: str, header: Header) -> Callable[[], pa.RecordBatch]:
        return partial(self._loaders[stream].load, header.first_id, header.count)

    # -- writing ------------------------------------------------------------------------

    def _run(self) -> None:
        # Nothing is added behind what is damaged; who serves or computes need not wait for this.
        for stream in self._unchecked:
            self.logs[stream].check()
        while True:
            self._is_busy = False
            order = self._queue.get()
            self._orders += 1
            self._is_busy = True
            match order:
                case None:
                    return
                case Append():
                    self._append(order)
                case ApplyCheckpoint():
                    self._apply(order)
                case TrimLog():
                    self._trim(order)
                case KeepEnd():
                    self._end(order)
                case work:
                    work()

    def _append(self, append: Append) -> None:
        taken: list[str] = []
        try:
            if self._before_append is not None:
                self._before_append(append)
            # 1 and 2: the frames
            self._write(append.frames, dict(append.begins), taken)
            # 3: the record
            if append.record is not None and self._kept is not None:
                self._kept.save(append.record, append.state)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._post(AppendFailed(append.append, reason, tuple(taken)))
            return
        # 4: say so
        self._post(Appended(append.append))

    def _apply(self, order: ApplyCheckpoint) -> None:
        checkpoint = order.checkpoint
        assert self._kept is not None
        try:
            # 1: something jobs can start from
            if isinstance(checkpoint.state, Pieces):
                boundary = checkpoint.record.boundary
                united = self._kept.unite(checkpoint.state.states, boundary)
                checkpoint = replace(checkpoint, state=united)
                order = replace(order, checkpoint=checkpoint)
            held = self._kept.take(checkpoint)
            # 2: the frames, then the record
            queues = list(checkpoint.queues)
            if isinstance(checkpoint.state, LoggedStream):
                queues.insert(0, checkpoint.state)
            for queue in in_order(queues):
                self._write([(queue.stream, queue.frames)], {queue.stream: queue.first_id}, [])
            self._kept.save_taken(order, held)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._post(CheckpointFailed(checkpoint.number, reason))
            return
        # 3: say so
        self._post(CheckpointApplied(checkpoint.number, held))

    def _write(self, streams: Streams, begins: Mapping[str, int], taken: list[str]) -> None:
        """Steps 1 and 2: append what the logs lack, and sync it.

        ``taken`` gets the streams for which that is done, also when another's log fails.
        """
        written: list[tuple[str, int, list[tuple[StreamFrame, int]]]] = []
        try:
            for stream, frames in streams:
                if stream not in self.logs:
                    taken.append(stream)  # in memory only
                    continue
                log = self.logs[stream]
                self._heal(stream, log)
                if begins.get(stream, 0) > log.next_id:
                    log.skip_to(begins[stream])
                fresh = list(lacking(frames, log.next_id))
                written.append((stream, self._write_frames(stream, log, fresh), fresh))
        finally:
            for stream, next_lsn, fresh in written:
                self.logs[stream].wait_durable(next_lsn)
                self._settle(stream, fresh)
                taken.append(stream)

    def _write_frames(
        self, stream: str, log: StreamLog, frames: list[tuple[StreamFrame, int]]
    ) -> int:
        if not frames:
            return log.next_lsn
        written = log.append([_without(frame, skip) for frame, skip in frames])
        for place, (frame, _) in enumerate(frames):
            if is_window(frame.header.kind):
                self._note_window(stream, frame.header.stime_min, written.first_lsn + place)
        return written.next_lsn

    def _heal(self, stream: str, log: StreamLog) -> None:
        """Open a log anew that the disk has failed; what it lost will be appended again."""
        if not log.is_broken:
            return
        log.heal()
        _logger.warning("%s: goes on from tuple %d", log.directory, log.next_id)
        places = self._window_places.get(stream)
        if places is not None:
            self._window_places[stream] = [each for each in places if each[1] < log.next_lsn]

    def _trim(self, order: TrimLog) -> None:
        """A trim that fails costs room and nothing else: the next one takes what it left."""
        log = self.logs.get(order.stream)
        if log is None:
            return
        places = [
            place
            for place in self._window_places.get(order.stream, ())
            if place[0] >= order.windows_from
        ]
        self._window_places[order.stream] = places
        keep = min((lsn for _, lsn in places), default=None)
        try:
            self._heal(order.stream, log)
            log.trim(min(order.below_id, log.next_id), keep_from_lsn=keep)
        except (OSError, LogError) as error:
            self._on_problem("trim", f"{log.directory}: cannot be trimmed now: {error}")
        else:
            self._on_problem("trim", None)

    def _end(self, order: KeepEnd) -> None:
        """Without the note nothing is lost: a changed network is refused until there is one."""
        try:
            if self._kept is not None:
                self._kept.end(order.ends)
        except OSError as error:
            self._on_problem("end", f"{self.directory}: it cannot be noted how it ended: {error}")

    # -- window states --------------------------------------------------------------------

    def piece(
        self,
        stream: str,
        record: RecoveryRecord,
        begin_lsn: int | None,
        breathe: Callable[[], None] = lambda: None,
    ) -> Piece:
        """The log from a place on, or from what ``record`` needs of it; any thread may ask.

        ``breathe`` is called between two frames.
        """
        log = self.logs[stream]
        # Only of what is durable does a place stay what it is, whatever happens to the disk.
        end = log.durable_lsn
        if begin_lsn is None or begin_lsn < log.first_lsn:
            begin_lsn = self._first_needed(stream, record, end)
        frames: list[StreamFrame] = []
        first_id = log.next_id
        with log.replay(from_lsn=begin_lsn) as reader:
            for lsn, frame in reader:
                if lsn >= end:
                    break
                breathe()
                if frame.kind is Kind.SKIP:
                    frames = [each for each in frames if is_window(each.header.kind)]
                elif frame.kind in KEPT_IN_LOG:
                    block = None if frame.batch is None else Block(frame.batch)
                    frames.append(StreamFrame(frame.header, block))
        stable = [each.header for each in frames if not is_window(each.header.kind)]
        if stable:
            first_id = stable[0].first_id
        return Piece(LoggedStream(stream, first_id, tuple(frames)), end)

    def _first_needed(self, stream: str, record: RecoveryRecord, end_lsn: int) -> int:
        places = list(self._window_places.get(stream, ()))
        needed = [lsn for time, lsn in places if time >= record.extent]
        if record.extent < record.boundary and not any(time <= record.extent for time, _ in places):
            raise LogError(
                f"{self.logs[stream].directory} has no window states of {record.extent} any more"
            )
        return min(needed, default=end_lsn)

    def note_windows(self, stream: str, places: Iterable[tuple[int, int]]) -> None:
        """The log has window states of these times, at these places."""
        for time, lsn in places:
            self._note_window(stream, time, lsn)

    def _note_window(self, stream: str, time: int, lsn: int) -> None:
        places = self._window_places.setdefault(stream, [])
        if not places or places[-1][0] != time:
            places.append((time, lsn))

    def _settle(self, stream: str, fresh: Iterable[tuple[StreamFrame, int]]) -> None:
        """The log has these tuples: their memory may go when it is needed."""
        for frame, _ in fresh:
            if isinstance(frame.block, Block) and frame.header.kind.is_data:
                frame.block.can_load(self._load(stream, frame.header))
                self._memory.add(frame.block)


def _without(frame: StreamFrame, skip: int) -> Frame:
    """The frame without its first tuples."""
    header = frame.header
    if frame.block is None:
        return Frame(header)
    assert isinstance(frame.block, Block)
    batch = frame.block.batch()
    if skip == 0:
        return Frame(header, batch)
    return data_frame(header.kind, header.first_id + skip, batch.slice(skip))


def _boundary(next_id: int, stime: int) -> StreamFrame:
    return StreamFrame(Header(Kind.BOUNDARY, next_id, 0, stime, stime, stime))
