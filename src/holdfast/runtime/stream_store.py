"""The disk of a process: a log for each stream it serves, and what a checkpoint adds.

One thread does all writing, so that the driver never waits for the disk. The steps of an append
are those of ``core.effects.Append``: frames, sync, record, report.

A log that was cut short by a crash may end with tuples after its last boundary. The protocols
count from the last boundary. An entry point's log is completed with a boundary that promises
nothing new: those tuples have their ids for good. A replica computes the same tuples again,
under the same ids; the ones the log has are not written twice.

Window states (``core.cec``) lie between the tuples. What a record needs of them is not trimmed.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa

from holdfast.blocks import Block, Loader, Memory
from holdfast.core.effects import Append, TrimLog, TruncateLog
from holdfast.core.events import Appended, AppendFailed, Event, LoggedStream, RecoveryRecord
from holdfast.core.frame import Header, Kind
from holdfast.core.messages import StreamFrame
from holdfast.errors import StateError
from holdfast.frames import Frame, data_frame
from holdfast.log import LogOptions, OutOfOrder, StreamLog
from holdfast.log.payload import is_window

KEPT_BYTES = 128 << 20

SaveRecord = Callable[[RecoveryRecord], None]
_Order = Append | TrimLog | TruncateLog | Callable[[], None] | None


class StreamStore:
    """The logs of one process."""

    def __init__(
        self,
        directory: Path,
        schemas: Mapping[str, pa.Schema],
        options: LogOptions,
        post: Callable[[Event], None],
        save_record: SaveRecord | None = None,
        before_append: Callable[[Append], None] | None = None,
    ) -> None:
        self.logs = {
            stream: StreamLog.open(directory / stream, schema, options=options)
            for stream, schema in schemas.items()
        }
        self._loaders = {stream: Loader(log) for stream, log in self.logs.items()}
        self._post = post
        self._save_record = save_record
        self._before_append = before_append
        self._memory = Memory(KEPT_BYTES)
        self._window_places: dict[str, deque[tuple[int, int]]] = {}
        self._queue: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="holdfast-disk", daemon=True)

    def check_reaches(self, next_ids: Mapping[str, int], state: Path) -> None:
        """StateError unless the logs go as far as ``state``, which goes on with these tuples.

        A log that was cut would leave a hole.
        """
        for stream, next_id in next_ids.items():
            log = self.logs[stream]
            if log.stable_next_id < next_id:
                raise StateError(
                    f"{log.directory}: the log ends before tuple {log.stable_next_id}, but the "
                    f"state in {state} goes on with tuple {next_id}: the log was cut. Put back "
                    f"the whole log; or remove both directories and let everything be computed "
                    f"anew, which works as long as the producers have all the input"
                )

    def start(self) -> None:
        self._thread.start()

    def put(self, order: Append | TrimLog | TruncateLog) -> None:
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

    @property
    def sizes(self) -> Mapping[str, int]:
        return MappingProxyType({stream: log.size_bytes for stream, log in self.logs.items()})

    # -- opening ------------------------------------------------------------------------

    def logged(self, stream: str, complete: bool) -> LoggedStream:
        """What a log holds; ``complete`` adds the boundary that a crash cut off."""
        log = self.logs[stream]
        frames: list[StreamFrame] = []
        with log.replay(from_id=log.first_id) as reader:
            for _, frame in reader:
                if frame.kind in (Kind.STABLE, Kind.BOUNDARY):
                    frames.append(self._found(stream, frame))
        boundary = log.last_boundary
        kinds = {frame.header.kind for frame in frames}
        if boundary is not None and Kind.BOUNDARY not in kinds:
            # Trimmed, with the segment it was in: it comes before all that is left.
            frames.insert(0, _boundary(log.first_id, boundary))
        if complete and frames and frames[-1].header.kind is not Kind.BOUNDARY:
            mark = _boundary(log.next_id, boundary or 0)
            log.append(Frame(mark.header))
            frames.append(mark)
        return LoggedStream(stream, log.first_id, tuple(frames))

    def _found(self, stream: str, frame: Frame) -> StreamFrame:
        if frame.batch is None:
            return StreamFrame(frame.header)
        block = Block(frame.batch, self._load(stream, frame.header))
        block.forget()
        return StreamFrame(frame.header, block)

    def _load(self, stream: str, header: Header) -> Callable[[], pa.RecordBatch]:
        return partial(self._loaders[stream].load, header.first_id, header.count)

    # -- writing ------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            order = self._queue.get()
            match order:
                case None:
                    return
                case Append():
                    self._append(order)
                case TrimLog(stream, below_id):
                    log = self.logs[stream]
                    places = self._window_places.get(stream)
                    keep = places[0][1] if places else None
                    log.trim(min(below_id, log.stable_next_id), keep_from_lsn=keep)
                case TruncateLog():
                    pass  # see above: what is there is right, or completed
                case work:
                    work()

    def _append(self, append: Append) -> None:
        try:
            if self._before_append is not None:
                self._before_append(append)
            self.write(append.frames, append.record)
        except Exception as error:
            self._post(AppendFailed(append.append, f"{type(error).__name__}: {error}"))
            return
        for stream, frames in append.frames:
            self._settle(stream, frames)
        # 4: say so
        self._post(Appended(append.append))

    def write(
        self,
        streams: Iterable[tuple[str, tuple[StreamFrame, ...]]],
        record: RecoveryRecord | None,
    ) -> None:
        """Steps 1 to 3, in the thread of this store."""
        # 1, 2: the frames, and wait until they are durable
        written = [(stream, self._write(stream, frames)) for stream, frames in streams]
        for stream, next_lsn in written:
            self.logs[stream].wait_durable(next_lsn)
        # 3: the record
        if record is not None and self._save_record is not None:
            self._save_record(record)
            self._forget_windows(record.extent)

    def restart(self, stream: str, next_id: int) -> None:
        """Drop a stream's log and go on with ``next_id``."""
        self._window_places.pop(stream, None)
        self.logs[stream].restart(next_id)

    def _write(self, stream: str, frames: tuple[StreamFrame, ...]) -> int:
        log = self.logs[stream]
        fresh: list[Frame] = []
        next_id = log.stable_next_id
        for frame in frames:
            header = frame.header
            if header.first_id > next_id:
                raise OutOfOrder(f"{log.directory}: id {header.first_id} came, {next_id} is next")
            if header.kind is Kind.STABLE:
                if header.next_id <= next_id:
                    continue
                fresh.append(_from(frame, next_id))
                next_id = header.next_id
            elif is_window(header.kind):
                assert isinstance(frame.block, Block)
                fresh.append(Frame(header, frame.block.batch()))
            elif header.first_id == next_id:
                fresh.append(Frame(header))
        if not fresh:
            return log.next_lsn
        written = log.append(fresh)
        for place, one in enumerate(fresh):
            if is_window(one.kind):
                self.note_window(stream, one.header.stime_min, written.first_lsn + place)
        return written.next_lsn

    def note_window(self, stream: str, time: int, lsn: int) -> None:
        """The log has window states of this time, from this place on."""
        places = self._window_places.setdefault(stream, deque())
        if not places or places[-1][0] != time:
            places.append((time, lsn))

    def first_window(self, stream: str) -> int | None:
        """The place of the oldest window states that the record on disk needs."""
        places = self._window_places.get(stream)
        try:
            return places[0][1] if places else None
        except IndexError:  # taken away by the store's thread a moment ago
            return None

    def replace_windows(self, stream: str, places: Iterable[tuple[int, int]]) -> None:
        """The log has window states of these times, at these places, and needs no others."""
        self._window_places[stream] = deque()
        for time, lsn in places:
            self.note_window(stream, time, lsn)

    def _forget_windows(self, extent: int) -> None:
        """The record on disk needs no window states older than ``extent``."""
        for places in self._window_places.values():
            while places and places[0][0] < extent:
                places.popleft()

    def _settle(self, stream: str, frames: tuple[StreamFrame, ...]) -> None:
        """The log has these tuples: their memory may go when it is needed."""
        for frame in frames:
            if isinstance(frame.block, Block) and frame.header.kind.is_data:
                frame.block.can_load(self._load(stream, frame.header))
                self._memory.add(frame.block)


def _from(frame: StreamFrame, first_id: int) -> Frame:
    """The frame's tuples from ``first_id`` on."""
    assert isinstance(frame.block, Block)
    header, batch = frame.header, frame.block.batch()
    skip = first_id - header.first_id
    if skip == 0:
        return Frame(header, batch)
    return data_frame(header.kind, first_id, batch.slice(skip))


def _boundary(next_id: int, stime: int) -> StreamFrame:
    return StreamFrame(Header(Kind.BOUNDARY, next_id, 0, stime, stime, stime))
