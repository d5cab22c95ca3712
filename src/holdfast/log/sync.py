"""Making what was written durable, and telling those who wait for it.

A sync covers, in this order:

1. sealed segments that were not durable yet, oldest first;
2. the last segment;
3. the directory, if a segment was begun since the last sync;

and then everything that had been written when it started is durable. With durability ALWAYS
the leader of each commit syncs; otherwise a thread does. If the disk reports an error the
operating system may have dropped the pages it could not write, so trying again proves
nothing: the log is broken until it is opened anew.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from holdfast.log.errors import LogBroken
from holdfast.log.options import Durability
from holdfast.log.segment import Segment
from holdfast.log.store import Store
from holdfast.log.writer import Writer

_LONGEST_WAIT_S = 1.0


class Syncer:
    """Syncs a log, at once or by interval."""

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self._files = store.files
        self._one_at_a_time = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if store.options.durability is not Durability.ALWAYS:
            name = f"sync {store.directory.name}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def sync(self, written_lsn: int | None = None) -> None:
        """Returns once everything published, and everything below ``written_lsn``, is durable."""
        with self._one_at_a_time:
            with self._store.lock:
                if self._store.broken is not None:
                    raise LogBroken(*self._store.broken.args)
                sealed = list(self._writer.sealed)
                last, last_fd = self._writer.segment, self._writer.fd
                lsn = self._store.tail.lsn if written_lsn is None else written_lsn
                checkpoint = self._due_checkpoint(last)
            try:
                for _, fd in sealed:
                    self._files.sync(fd)
                self._files.sync(last_fd)
                if sealed or not last.is_named:
                    self._files.sync_directory(self._store.directory)
            except OSError as error:
                raise self._break(error) from error
            with self._store.lock:
                for segment in (*(segment for segment, _ in sealed), last):
                    segment.is_named = True
                del self._writer.sealed[: len(sealed)]
                self._store.synced_lsn = max(self._store.synced_lsn, lsn)
                self._store.changed.notify_all()
            for segment, fd in sealed:
                self._files.close(fd)
                self._save_index(segment, segment.packed_index(), segment.end)
            if checkpoint is not None:
                self._save_index(last, *checkpoint)

    def _due_checkpoint(self, last: Segment) -> tuple[bytes, int] | None:
        """The last segment's index, if enough was published since it was saved. What it covers
        becomes durable with the sync that is about to start."""
        if last.end - max(last.indexed_to, last.blocks_at) < self._store.options.checkpoint_bytes:
            return None
        return last.packed_index(), last.end

    def save_last_index(self) -> None:
        """Saves the index of the last segment, all of which must be durable."""
        last = self._writer.segment
        self._save_index(last, last.packed_index(), last.end)

    def _save_index(self, segment: Segment, packed: bytes, end: int) -> None:
        # An index file can always be made again: that one cannot be written now is no failure.
        with suppress(OSError):
            self._files.write_whole(segment.index_path, packed)
            segment.indexed_to = end

    def _break(self, error: OSError) -> LogBroken:
        store = self._store
        broken = LogBroken(
            f"{store.directory}: the disk failed to make the log durable ({error}); what is not "
            f"acknowledged yet may be lost. Look at the disk, then reopen the log"
        )
        with store.lock:
            store.broken = broken
            store.changed.notify_all()
        return broken

    def _run(self) -> None:
        store = self._store
        while not self._stop.is_set():
            with store.lock:
                if store.synced_lsn >= store.tail.lsn:
                    store.to_sync.wait(_LONGEST_WAIT_S)
                    continue
            if self._stop.wait(store.options.sync_interval_ms / 1000):
                return
            with suppress(LogBroken):
                self.sync()
            if store.broken is not None:
                return

    def stop(self) -> None:
        """Ends the thread; a last sync is up to the caller."""
        self._stop.set()
        with self._store.lock:
            self._store.to_sync.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def close(self) -> None:
        for _, fd in self._writer.sealed:
            self._files.close(fd)
        self._writer.sealed.clear()
