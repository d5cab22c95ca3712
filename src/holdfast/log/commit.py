"""Group commit: appends of several threads share one write and one sync.

Each append queues its blocks and gets its lsns under the lock. Then one of the waiting threads,
the leader, takes what is queued and, without the lock,

1. begins a new segment, if the last one is full;
2. writes the blocks in one go;
3. syncs, if the durability is ALWAYS;

and, with the lock again,

4. publishes them to readers and wakes the others.

While it is at work the next ones queue up, so the slower the disk, the larger the groups. There
is no writer thread: an append that finds nobody at work does its own, with no switch.

Ids and lsns build on those queued before, so if a group fails, everything queued behind it fails
too, and the next append continues from what was published. The blocks of one append are written
together but are not a unit: a crash may keep only the first of them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.log.block import Encoded
from holdfast.log.errors import LogBroken, LogClosed, LogError, WriteFailed
from holdfast.log.options import Durability
from holdfast.log.store import PlacedBlock, Store
from holdfast.log.sync import Syncer
from holdfast.log.writer import Writer

_GROUP_BYTES = 16 << 20


class Appended(NamedTuple):
    """What an append took: the ids and the lsns from first (inclusive) to next (exclusive)."""

    first_id: int
    next_id: int
    first_lsn: int
    next_lsn: int


class _Ticket:
    """One append on its way."""

    __slots__ = ("blocks", "error", "is_done", "size")

    def __init__(self, blocks: list[PlacedBlock]) -> None:
        self.blocks = blocks
        self.size = sum(block.length for block, _, _ in blocks)
        self.is_done = False
        self.error: LogError | None = None


class Committer:
    """The way into a log for any number of threads."""

    def __init__(self, store: Store, writer: Writer, syncer: Syncer) -> None:
        self._store = store
        self._writer = writer
        self._syncer = syncer
        self._turn = threading.Condition(store.lock)
        self._queue: deque[_Ticket] = deque()
        self._queued = store.tail  # the tail after everything in the queue
        self._is_led = False

    def append(self, blocks: Sequence[Encoded]) -> Appended:
        """Returns once the blocks are published."""
        with self._store.lock:
            self._check_usable()
            start = tail = self._queued
            placed = []
            for block in blocks:
                before, tail = tail, tail.after(block.header)
                placed.append(PlacedBlock(block, before, tail))
            appended = Appended(start.next_id, tail.next_id, start.lsn, tail.lsn)
            if not placed:
                return appended
            ticket = _Ticket(placed)
            self._queued = tail
            self._queue.append(ticket)
            while self._is_led and not ticket.is_done:
                self._turn.wait()
            if not ticket.is_done:
                self._is_led = True
        if not ticket.is_done:
            self._lead(ticket)
        if ticket.error is not None:
            # A copy, as several threads may raise it, each with a traceback of its own.
            raise type(ticket.error)(*ticket.error.args) from ticket.error
        return appended

    def quiesce(self) -> None:
        """Waits for appends under way; the caller has made sure that no new ones come."""
        with self._store.lock:
            while self._is_led or self._queue:
                self._turn.wait()

    def _check_usable(self) -> None:
        store = self._store
        if store.closed:
            raise LogClosed(f"{store.directory}: the log was closed; open it again to append")
        if store.broken is not None:
            raise LogBroken(*store.broken.args)

    def _lead(self, own: _Ticket) -> None:
        try:
            while not own.is_done:
                self._commit_group()
        finally:
            with self._store.lock:
                self._is_led = False
                self._turn.notify_all()

    def _commit_group(self) -> None:
        group: list[_Ticket] = []
        try:
            with self._store.lock:
                group.append(self._queue.popleft())
            if self._writer.must_roll(group[0].size):
                self._writer.roll()
            with self._store.lock:
                self._take_more(group)
            blocks = [block for ticket in group for block in ticket.blocks]
            self._writer.write(blocks)
            if self._store.options.durability is Durability.ALWAYS:
                self._syncer.sync(blocks[-1].after.lsn)
        except BaseException as error:
            self._fail(group, error)
            if not isinstance(error, LogError):
                raise
            return
        self._publish(group, blocks)

    def _publish(self, group: list[_Ticket], blocks: list[PlacedBlock]) -> None:
        with self._store.lock:
            self._store.publish(blocks)
            for ticket in group:
                ticket.is_done = True
            self._turn.notify_all()

    def _take_more(self, group: list[_Ticket]) -> None:
        size = group[0].size
        room = min(_GROUP_BYTES, self._store.options.segment_bytes - self._writer.segment.end)
        while self._queue and size + self._queue[0].size <= room:
            ticket = self._queue.popleft()
            size += ticket.size
            group.append(ticket)

    def _fail(self, group: list[_Ticket], error: BaseException) -> None:
        store = self._store
        reason = error
        if not isinstance(reason, LogError):
            reason = WriteFailed(f"{store.directory}: the commit was interrupted by {error!r}")
        with store.lock:
            if store.broken is None:
                try:
                    self._writer.cut()
                except LogBroken as broken:
                    store.broken = reason = broken
            for ticket in (*group, *self._queue):
                ticket.error, ticket.is_done = reason, True
            self._queue.clear()
            self._queued = store.tail
            self._turn.notify_all()
