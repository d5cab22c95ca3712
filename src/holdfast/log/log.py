"""The stream log: the durable memory of one stream of one replica or entry point.

    with StreamLog.open(directory, schema) as log:
        log.append([frame, boundary])               # returns once written, or once durable
        with log.follow(from_id=17) as reader:      # from any id, then along the live end
            for lsn, frame in reader: ...
        log.trim(below_id=4_000)                    # once everybody has acknowledged

A log is a directory of segments (segment.py) of blocks (block.py), one block per frame. One
object writes it, from any number of threads (commit.py); any number of readers follow it
(reader.py, rules.py). Positions: an *id* names a tuple of the stream and may be used again
after an UNDO; an *lsn* names a block of the log and never is. Both count from 0, and ranges
include their first and exclude their last. An lsn means something only within one opening
of the log: blocks that were not durable may be lost with the machine and their lsns given
to others. ``session`` tells one opening from the next.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from holdfast.core.frame import Header, Kind
from holdfast.frames import Frame
from holdfast.log.commit import Appended, Committer
from holdfast.log.cursor import CHUNK_BYTES, blocks_backwards
from holdfast.log.errors import LogBroken, LogClosed, LogError, UnknownPosition
from holdfast.log.files import Files
from holdfast.log.opening import cut_to_durable, open_store, recover_store
from holdfast.log.options import LogOptions
from holdfast.log.payload import Encoder, decode
from holdfast.log.reader import Entry, Reader
from holdfast.log.recovery import TailCut
from holdfast.log.retention import Retention
from holdfast.log.rules import AsWritten, Rule, Standing, TakeBack
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
        self.session = secrets.token_hex(8)
        if self._lock_fd is not None:
            self._encoder = Encoder(store.schema)
            self._writer = Writer(store)
            self._syncer = Syncer(store, self._writer)
            self._retention = Retention(store, self._writer, self._syncer)
            self._committer = Committer(store, self._writer, self._syncer, self._retention)

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        schema: pa.Schema | None = None,
        *,
        options: LogOptions | None = None,
        first_id: int = 0,
        read_only: bool = False,
        files: Files | None = None,
    ) -> StreamLog:
        """Opens the log in ``directory``, making a new one if there is none.

        schema     of the stream's tuples; needed for a new log, checked for one that exists.
        first_id   the first id of a new log; not zero for a replica that starts from a state.
        read_only  reads what is there now, and changes nothing: no lock is taken, a torn tail is
                   not cut, and of a damaged log everything before the damage can be read.

        ``cut`` of the log says whether a torn tail was found. Raises LogLocked, SchemaMismatch,
        DamagedLog.
        """
        path, options = Path(directory), options or LogOptions()
        store, lock_fd, cut = open_store(
            files or Files(), path, schema, options, first_id, read_only=read_only
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
        has reached the result's ``next_lsn``. Raises OutOfOrder, SchemaMismatch, LogFull, DiskFull
        and others; then nothing of this append was kept, and if nobody else appended in the
        meantime, the same append may be tried again.
        """
        return self._append(frames, renumber=False)

    def append_next(self, frames: Frame | Iterable[Frame]) -> Appended:
        """Like ``append``, but gives each frame the next ids, whatever ids it has.

        For several threads that append to one stream. The result says which ids they got.
        """
        return self._append(frames, renumber=True)

    def _append(self, frames: Frame | Iterable[Frame], *, renumber: bool) -> Appended:
        if self._lock_fd is None:
            raise LogError(f"{self.directory}: the log was opened with read_only=True")
        frames = [frames] if isinstance(frames, Frame) else frames
        # Arrow and CRC work before the queue, so that several threads do it side by side.
        blocks = [self._encoder.encode(frame) for frame in frames]
        return self._committer.append(blocks, renumber=renumber)

    def sync(self) -> None:
        """Makes everything written durable now, whatever the durability setting."""
        self._check_open()
        self._syncer.sync()

    def when_durable(self, lsn: int) -> Future[int]:
        """A future that is done once everything below ``lsn`` is durable; fails with the log."""
        self._check_open()
        return self._syncer.when_durable(lsn)

    def wait_durable(self, lsn: int, timeout_s: float | None = None) -> bool:
        """Waits until everything below ``lsn`` is durable; False if it is not in time."""
        store = self._store
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with store.lock:
            while store.durable_lsn < lsn:
                self._check_open()
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                store.changed.wait(left)
        return True

    def trim(self, below_id: int, *, keep_from_lsn: int | None = None) -> int:
        """Removes whole segments from the front that hold only tuples below ``below_id``.

        Never removes tuples that are not stable, the last segment, nor blocks from
        ``keep_from_lsn`` on, such as window states that are still needed. Returns the bytes freed.
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

    def follow(
        self,
        *,
        from_id: int | None = None,
        from_lsn: int | None = None,
        from_stime: int | None = None,
        tentative_to: int | None = None,
        take_back: TakeBack = TakeBack.CORRECTED,
        windows: bool = False,
        durable_only: bool = False,
    ) -> Reader:
        """A reader that starts anywhere in the log and then follows its live end.

        from_lsn    everything as it was written.
        from_id     the stream as it stands from that tuple on; see rules.py for exactly what.
                    The id may be ahead of the log: the reader then waits for it.
        from_stime  likewise, from the first tuple with at least that time, in microseconds.

        tentative_to, take_back: for a subscriber that has tentative tuples from ``from_id`` up to
        ``tentative_to`` from another replica. windows: also deliver window states.
        durable_only: deliver a frame only once it is durable, so that it cannot be lost and
        its ids given to other tuples after somebody has seen it.

        Raises Trimmed if the place is no longer in the log, UnknownPosition for an lsn it never
        had.
        """
        rule, lsn = self._start(from_id, from_lsn, from_stime, tentative_to, take_back, windows)
        return Reader(self._store, rule, lsn, durable_only=durable_only, until_lsn=None)

    def replay(
        self,
        *,
        from_id: int | None = None,
        from_lsn: int | None = None,
        from_stime: int | None = None,
        windows: bool = False,
    ) -> Reader:
        """Like ``follow``, but ends where the log ends now."""
        rule, lsn = self._start(from_id, from_lsn, from_stime, None, TakeBack.CORRECTED, windows)
        until_lsn = self.next_lsn
        return Reader(self._store, rule, lsn, durable_only=False, until_lsn=until_lsn)

    def _start(
        self,
        from_id: int | None,
        from_lsn: int | None,
        from_stime: int | None,
        tentative_to: int | None,
        take_back: TakeBack,
        windows: bool,
    ) -> tuple[Rule, int]:
        if sum(start is not None for start in (from_id, from_lsn, from_stime)) != 1:
            raise TypeError("give exactly one of from_id, from_lsn and from_stime")
        store = self._store
        with store.lock:
            if store.closed:
                raise LogClosed(f"{self.directory}: the log was closed")
            if from_lsn is not None:
                self._check_lsn(from_lsn)
                return AsWritten(), from_lsn
            if from_stime is not None:
                rule = Standing(store.first_id, from_stime=from_stime, windows=windows)
                return rule, store.find_stime(from_stime)
            assert from_id is not None
            lsn = store.find_id(from_id)
        rule = Standing(from_id, tentative_to=tentative_to, take_back=take_back, windows=windows)
        return rule, lsn

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
        before_lsn: int | None = None,
        kinds: Collection[Kind] | None = None,
    ) -> Iterator[Entry]:
        """Everything as it was written, the newest frame first, read in large pieces."""
        schema = self._store.schema
        for block in blocks_backwards(
            self._store, self.next_lsn if before_lsn is None else before_lsn, chunk_bytes
        ):
            if kinds is None or block.kind in kinds:
                yield Entry(block.lsn, decode(block, schema))

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
        """The id of the next tuple; tentative tuples count until they are undone."""
        return self._store.tail.next_id

    @property
    def stable_next_id(self) -> int:
        """The id after the last stable tuple."""
        return self._store.tail.stable_next_id

    @property
    def last_stable_id(self) -> int | None:
        """The id of the last stable tuple the stream has had, in this log or before it."""
        return self.stable_next_id - 1 if self.stable_next_id else None

    @property
    def last_boundary(self) -> int | None:
        """The newest boundary with no tentative tuple before it: a promise that holds."""
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
        return self._store.durable_lsn

    @property
    def size_bytes(self) -> int:
        with self._store.lock:
            return self._store.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._store.segments)

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
            fresh, cut = recover_store(store.files, store.directory, None, store.options, 0)
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
