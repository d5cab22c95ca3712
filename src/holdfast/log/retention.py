"""How a log gets smaller.

*Trimming* removes whole segments from the front, once nobody needs the stable tuples in them
any more: those that acknowledged them said so.

*Making room*, when a log has a bound and has reached it, drops tentative tuples, which the log
may lose: first those that have been undone, then those that still stand, oldest first. The
segments that hold them are rewritten without them, a gap (block.py) in their place, so lsns and
ids still add up and stable tuples and marks stay. When that is not enough the append is refused:
stable tuples are only ever removed by trimming.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from holdfast.log.block import Block
from holdfast.log.errors import DamagedLog
from holdfast.log.rewrite import MayGo, rewrite
from holdfast.log.segment import Segment
from holdfast.log.store import Store
from holdfast.log.sync import Syncer
from holdfast.log.writer import Writer


class Retention:
    """Trims a log and keeps it within its bound."""

    def __init__(self, store: Store, writer: Writer, syncer: Syncer) -> None:
        self._store = store
        self._files = store.files
        self._writer = writer
        self._syncer = syncer
        self._one_at_a_time = threading.Lock()
        # Segments that are of the log no more, and whose files could not be removed yet.
        self._leftover: list[Segment] = []

    def trim(self, below_id: int, keep_from_lsn: int | None) -> int:
        """Removes the segments at the front in which no tuple from ``below_id`` on stands and
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
        below_id = min(below_id, store.tail.stable_next_id)
        count = 0
        for following in store.segments[1:]:
            start = following.header.start
            stands_to = store.undone.stands_to(start.lsn - 1)
            end_id = start.next_id if stands_to is None else min(start.next_id, stands_to)
            if end_id > below_id or (keep_from_lsn is not None and start.lsn > keep_from_lsn):
                break
            count += 1
        return count

    def make_room(self, size: int) -> bool:
        """Whether ``size`` more bytes fit the bound, now or after dropping tentative tuples.

        Only the leader of a commit calls this, as the last segment may have to be sealed.
        """
        most = self._store.options.max_bytes
        if most is None or self._store.size_bytes + size <= most:
            return True
        with self._one_at_a_time:
            for undone_only in (True, False):
                for segment in self._with_tentative(undone_only):
                    self._drop(segment, undone_only)
                    if self._store.size_bytes + size <= most:
                        return True
        return False

    def _with_tentative(self, undone_only: bool) -> list[Segment]:
        store = self._store
        with store.lock:
            return [
                segment
                for segment in store.segments
                if segment.index.tentative_bytes
                and not (undone_only and store.undone.stands_to(segment.first_lsn) is None)
            ]

    def _drop(self, segment: Segment, undone_only: bool) -> None:
        """Rewrites ``segment`` without its tentative blocks; leaves it alone if it has none that
        may go, or if there is no room to write."""
        if segment is self._writer.segment:
            if segment.index.tentative_bytes <= 2 * segment.blocks_at:
                return  # the header of the next segment, and gaps, would take what this frees
            self._writer.roll()
        if segment.end_lsn > self._store.synced_lsn:
            self._syncer.sync()
        temporary = segment.path.with_name(segment.path.name + ".tmp")
        index_bytes = self._store.options.index_bytes
        try:
            rewritten = rewrite(
                self._files, segment, temporary, self._may_go(undone_only), index_bytes
            )
            if rewritten is None:
                return
            with self._store.lock:
                # Readers open files under this lock, so they see both changes or neither.
                self._files.replace(temporary, segment.path)
                self._store.replace_segment(segment, rewritten)
            self._files.sync_directory(self._store.directory)
            self._files.write_whole(rewritten.index_path, rewritten.packed_index())
        except (OSError, DamagedLog):
            with suppress(OSError):
                self._files.remove(temporary)

    def _may_go(self, undone_only: bool) -> MayGo:
        def may_go(block: Block) -> bool:
            if not block.is_tentative or not undone_only:
                return block.is_tentative
            with self._store.lock:
                stands_to = self._store.undone.stands_to(block.lsn)
            return stands_to is not None and stands_to <= block.first_id

        return may_go
