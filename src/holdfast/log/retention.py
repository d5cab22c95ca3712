"""How a log gets smaller: whole segments are removed from the front, once nobody needs the tuples
in them any more. Those that acknowledged them said so.
"""

from __future__ import annotations

import threading

from holdfast.log.segment import Segment
from holdfast.log.store import Store
from holdfast.log.sync import Syncer


class Retention:
    """Trims a log."""

    def __init__(self, store: Store, syncer: Syncer) -> None:
        self._store = store
        self._files = store.files
        self._syncer = syncer
        self._one_at_a_time = threading.Lock()
        # Segments that are of the log no more, and whose files could not be removed yet.
        self._leftover: list[Segment] = []

    def trim(self, below_id: int, keep_from_lsn: int | None) -> int:
        """Removes the segments at the front in which there is no tuple from ``below_id`` on and
        no block from ``keep_from_lsn`` on is; returns how many bytes that freed."""
        with self._one_at_a_time:
            with self._store.lock:
                count = self._count_below(below_id, keep_from_lsn)
                if count == 0:
                    return self._remove_leftover()
                named = self._store.segments[count].is_named
            if not named:
                # The segment that becomes the first must survive if those before it do not.
                self._syncer.sync()
            return self._remove_first(count)

    def _remove_first(self, count: int) -> int:
        with self._store.lock:
            self._leftover += self._store.remove_first(count)
        return self._remove_leftover()

    def _remove_leftover(self) -> int:
        """Oldest first, each for good before the next: neither a crash nor a failure makes a hole.

        What cannot be removed now is tried again with the next trim.
        """
        freed = 0
        while self._leftover:
            segment = self._leftover[0]
            self._files.remove(segment.path)
            self._files.sync_directory(self._store.directory)
            self._files.remove(segment.index_path)
            del self._leftover[0]
            freed += segment.end
        return freed

    def _count_below(self, below_id: int, keep_from_lsn: int | None) -> int:
        store = self._store
        count = 0
        for following in store.segments[1:]:
            start = following.header.start
            needed = keep_from_lsn is not None and start.lsn > keep_from_lsn
            if needed or start.next_id > below_id:
                break
            count += 1
        return count
