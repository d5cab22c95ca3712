"""The stream log: the durable memory of one stream of one replica or entry point.

    with StreamLog.open(directory, schema) as log:
        log.append([frame, boundary])               # returns once written, or once durable
        with log.replay(from_id=17) as reader:      # from any id to where the log ends now
            for lsn, frame in reader: ...
        log.trim(below_id=4_000)                    # once everybody has acknowledged

A log is a directory of segments (segment.py) of blocks (block.py), one block per frame. One
object writes it, from any number of threads (commit.py); any number of readers read it
(reader.py). Positions: an *id* names a tuple of the stream, an *lsn* a block of the log. Both
count from 0, and ranges include their first and exclude their last. An lsn means something only
within one opening of the log: blocks that were not durable may be lost with the machine and their
lsns given to others.

Only what is stable is kept: tuples, boundaries, and window states, which are their owner's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from holdfast.core.frame import Header, Kind
from holdfast.frames import Frame
from holdfast.log.commit import Appended, Committer
from holdfast.log.cursor import CHUNK_BYTES, blocks_backwards, check, headers
from holdfast.log.errors import LogBroken, LogClosed, LogError, UnknownPosition
from holdfast.log.files import Files
from holdfast.log.opening import cut_to_durable, open_store, recover_store
from holdfast.log.options import LogOptions
from holdfast.log.payload import Encoder, decode
from holdfast.log.reader import Entry, LogReader
from holdfast.log.recovery import TailCut
from holdfast.log.retention import Retention
from holdfast.log.store import Store
from holdfast.log.sync import Syncer
from holdfast.log.writer import Writer


class StreamLog:
    """A durable, ordered log of frames; make one with ``StreamLog.open``."""

    def __init__(self, store: Store, lock_fd: int | None, cut: TailCut | None) -> None:
        self._lock_fd = lock_fd
        self._closing = threading.Lock()
        self._use(store, cut)

    def _use(self, store: Store, cut: TailCut | None) -> None:
        self._store = store
        self.cut = cut
        if self._lock_fd is not None:
            self._encoder = Encoder(store.schema)
            self._writer = Writer(store)
            self._syncer = Syncer(store, self._writer)
            self._retention = Retention(store, self._syncer)
            self._committer = Committer(store, self._writer, self._syncer)

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        schema: pa.Schema | None = None,
        *,
        options: LogOptions | None = None,
        read_only: bool = False,
        files: Files | None = None,
    ) -> StreamLog:
        """Opens the log in ``directory``, making a new one if there is none.

        schema     of the stream's tuples; needed for a new log. One that exists may gain columns
                   by it that can be null (``holdfast.gained``); else it is checked.
        read_only  reads what is there now, and changes nothing: no lock is taken, a torn tail is
                   not cut, and of a damaged log everything before the damage can be read.

        ``cut`` of the log says whether a torn tail was found. Raises LogLocked, SchemaMismatch,
        DamagedLog.
        """
        path, options = Path(directory), options or LogOptions()
        store, lock_fd, cut = open_store(
            files or Files(), path, schema, options, read_only=read_only
        )
        try:
            return cls(store, lock_fd, cut)
        except BaseException:
            if lock_fd is not None:
                os.close(lock_fd)
            raise

    # Writing

    def append(self, frames: Frame | Iterable[Frame]) -> Appended:
        """Writes frames at the end; they must continue the stream (order.py).

        With durability ALWAYS they are durable when this returns; otherwise once ``durable_lsn``
        has reached the result's ``next_lsn``. Raises OutOfOrder, SchemaMismatch, DiskFull and
        others; then nothing of this append was kept, and if nobody else appended in the meantime,
        the same append may be tried again.
        """
        if self._lock_fd is None:
            raise LogError(f"{self.directory}: the log was opened with read_only=True")
        frames = [frames] if isinstance(frames, Frame) else frames
        # Arrow and CRC work before the queue, so that several threads do it side by side.
        blocks = [self._encoder.encode(frame) for frame in frames]
        return self._committer.append(blocks)

    def sync(self) -> None:
        """Makes everything written durable now, whatever the durability setting."""
        self._check_open()
        self._syncer.sync()

    def wait_durable(self, lsn: int) -> None:
        """Waits until everything below ``lsn`` is durable."""
        store = self._store
        with store.lock:
            while store.synced_lsn < lsn:
                self._check_open()
                store.changed.wait()

    def trim(self, below_id: int, *, keep_from_lsn: int | None = None) -> int:
        """Removes whole segments from the front that hold only tuples below ``below_id``.

        Never removes the last segment, nor blocks from ``keep_from_lsn`` on, such as window states
        that are still needed. Returns the bytes freed.
        """
        self._check_open()
        return self._retention.trim(below_id, keep_from_lsn)

    def skip_to(self, next_id: int) -> None:
        """Goes on with the tuple ``next_id``; what lies between is not in this log.

        For a replica that takes over a state newer than its own log, once everyone who needs
        the tuples between has them. Window states from before stay until they are trimmed.
        """
        self.append(Frame(Header(Kind.SKIP, next_id)))

    # Reading

    def replay(self, *, from_id: int | None = None, from_lsn: int | None = None) -> LogReader:
        """A reader from a place up to where the log ends now.

        from_lsn  everything as it was written.
        from_id   the stream from that tuple on; see reader.py for exactly what.

        Raises Trimmed if the place is no longer in the log, UnknownPosition for an lsn it never
        had.
        """
        if (from_id is None) == (from_lsn is None):
            raise TypeError("give exactly one of from_id and from_lsn")
        store = self._store
        with store.lock:
            if store.closed:
                raise LogClosed(f"{self.directory}: the log was closed")
            if from_lsn is not None:
                self._check_lsn(from_lsn)
                return LogReader(store, from_lsn, None, store.tail.lsn)
            assert from_id is not None
            return LogReader(store, store.find_id(from_id), from_id, store.tail.lsn)

    def headers(self) -> Iterator[tuple[Header, int]]:
        """The header of every frame, the oldest first, and the size of its tuples in bytes.

        The tuples are not read: that they are intact is checked by whoever reads them (``check``).
        """
        return headers(self._store)

    def check(self) -> None:
        """Reads everything that is there now; DamagedLog if it is not intact."""
        check(self._store)

    def _check_lsn(self, lsn: int) -> None:
        if lsn > self._store.tail.lsn:
            raise UnknownPosition(
                f"{self.directory}: lsn {lsn} is beyond the end, {self._store.tail.lsn}; an lsn is "
                f"good for one opening of a log, after that start from an id"
            )
        self._store.find_lsn(lsn)

    def read_backwards(
        self,
        chunk_bytes: int = CHUNK_BYTES,
        *,
        kinds: Collection[Kind] | None = None,
    ) -> Iterator[Entry]:
        """Everything as it was written, the newest frame first, read in large pieces."""
        store = self._store
        for block in blocks_backwards(store, self.next_lsn, chunk_bytes):
            if kinds is None or block.kind in kinds:
                written = store.written_schema(block.lsn)
                yield Entry(block.lsn, decode(block, written, store.schema))

    # What is in it

    @property
    def directory(self) -> Path:
        return self._store.directory

    @property
    def schema(self) -> pa.Schema:
        return self._store.schema

    @property
    def first_id(self) -> int:
        """The lowest id a reader can start from."""
        with self._store.lock:
            return self._store.first_id

    @property
    def next_id(self) -> int:
        """The id of the next tuple."""
        return self._store.tail.next_id

    @property
    def last_boundary(self) -> int | None:
        """The newest boundary."""
        return self._store.tail.boundary

    @property
    def first_lsn(self) -> int:
        return self._store.first_lsn

    @property
    def next_lsn(self) -> int:
        """The lsn of the next frame."""
        return self._store.tail.lsn

    @property
    def durable_lsn(self) -> int:
        """Every frame below this lsn is durable, as far as the durability setting promises."""
        return self._store.synced_lsn

    @property
    def size_bytes(self) -> int:
        with self._store.lock:
            return self._store.size_bytes

    # When the disk has failed

    @property
    def is_broken(self) -> bool:
        """Whether the disk failed in a way that leaves unknown what it holds."""
        return self._store.broken is not None

    def heal(self) -> None:
        """Goes on after the disk has failed, from what is known to be durable.

        Steps: (1) take back everything that may not be durable; (2) look at the files as an opening
        does; (3) end the readers there are. What had not become durable must be appended again:
        nobody was told that it is. Raises OSError or LogError while the disk still fails; the log
        is then as broken as before, and this may be tried again.
        """
        with self._closing:
            store = self._store
            if store.broken is None or store.closed:
                return
            self._committer.quiesce()
            self._syncer.stop()
            cut_to_durable(store)
            fresh, cut = recover_store(store.files, store.directory, None, store.options)
            with store.lock:
                store.closed = True
                store.changed.notify_all()
            self._syncer.close()
            self._writer.close()
            self._use(fresh, cut)

    # The end

    def _check_open(self) -> None:
        if self._lock_fd is None:
            raise LogError(f"{self.directory}: the log was opened with read_only=True")
        if self._store.closed:
            raise LogClosed(f"{self.directory}: the log was closed; open it again")
        if self._store.broken is not None:
            raise LogBroken(*self._store.broken.args)

    def close(self) -> None:
        """Makes everything durable and frees the log for the next writer; ends its readers.

        Steps: (1) no new appends; those under way finish. (2) A last sync. (3) Reserved room is
        given back. (4) The index file says how far the log goes, so that the next opening reads
        nothing and any damage to it is found. (5) The lock is freed.
        """
        with self._closing:
            store = self._store
            with store.lock:
                if store.closed:
                    return
                store.closed = True
                store.changed.notify_all()
            if self._lock_fd is None:
                return
            try:
                self._committer.quiesce()
                self._syncer.stop()
                if store.broken is None:
                    self._syncer.sync()
                    self._writer.release_reserve()
                    self._syncer.save_last_index()
            finally:
                self._writer.close()
                self._syncer.close()
                os.close(self._lock_fd)

    def __enter__(self) -> StreamLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
