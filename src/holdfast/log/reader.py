"""A reader: catches up from disk, then follows the live end of a log without a gap.

There is no hand-over between the two. A reader always reads published blocks from the files, which
at the live end means from the operating system's memory, and waits when it has seen them all. So
any number of readers, fast or slow, cost the writer nothing but a notification, and a reader never
has more in memory than the piece it read last.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple

from holdfast.core.frame import Kind
from holdfast.frames import Frame
from holdfast.log.block import Block
from holdfast.log.cursor import Cursor
from holdfast.log.errors import Trimmed
from holdfast.log.payload import decode
from holdfast.log.rules import Rule
from holdfast.log.store import Store

_LONGEST_WAIT_S = 1.0


class Entry(NamedTuple):
    """A frame and its place: reading ``from_lsn=entry.lsn + 1`` goes on after it."""

    lsn: int
    frame: Frame


class Reader:
    """Delivers the frames of a log from some place on; see ``StreamLog.follow``.

    One thread reads; any thread may ``stop`` it.
    """

    def __init__(
        self, store: Store, rule: Rule, lsn: int, *, durable_only: bool, until_lsn: int | None
    ) -> None:
        self._store = store
        self._rule = rule
        self._durable_only = durable_only
        self._until_lsn = until_lsn
        self._schema = store.schema
        self._cursor = Cursor(store, lsn)
        self._blocks: deque[Block] = deque()
        self._ready: deque[Entry] = deque(Entry(lsn, frame) for frame in rule.first())
        self._stopped = False

    @property
    def lsn(self) -> int:
        """Everything below this has been delivered or passed over."""
        if self._ready:
            return self._ready[0].lsn
        return self._blocks[0].lsn if self._blocks else self._cursor.lsn

    @property
    def behind(self) -> int:
        """How many frames there are to read at the moment; 0 at the live end."""
        with self._store.lock:
            return max(0, self._stop_lsn() - self.lsn)

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def read(self, timeout_s: float | None = None) -> list[Entry]:
        """The next few frames, at least one; waits for it up to ``timeout_s`` (None: for good).

        Empty if none came in time, and for ever after the reader was stopped, the log closed, or
        the end of a replay reached.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        entries: list[Entry] = []
        while not entries and not self._stopped:
            entries = self._take_all()
            if not entries and not self._wait(deadline):
                break
        return entries

    def __iter__(self) -> Iterator[Entry]:
        """Every frame, waiting for more at the live end, until stopped or closed."""
        while not self._stopped:
            entry = self._take_one()
            if entry is not None:
                yield entry
            elif not self._wait(None):
                return

    def stop(self) -> None:
        """Ends reading, now or, if a read is waiting, at once; from any thread."""
        self._stopped = True
        with self._store.lock:
            self._store.changed.notify_all()

    def close(self) -> None:
        """Stops and gives back the open file; only the reading thread may call this."""
        self.stop()
        self._blocks.clear()
        self._ready.clear()
        self._cursor.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _take_all(self) -> list[Entry]:
        """What the piece at hand, or the next one, has to deliver."""
        entries = list(self._ready)
        self._ready.clear()
        while not entries and not self._stopped and self._fetch():
            for block in self._blocks:
                entries += self._deliver(block)
            self._blocks.clear()
        return entries

    def _take_one(self) -> Entry | None:
        while not self._ready and not self._stopped and self._fetch():
            self._ready.extend(self._deliver(self._blocks.popleft()))
        return self._ready.popleft() if self._ready else None

    def _fetch(self) -> bool:
        """Whether there are blocks at hand, reading some if there are not."""
        if not self._blocks:
            with self._store.lock:
                # A closed log may be trimmed or rewritten by whoever opens it next.
                stop_lsn = 0 if self._store.closed else self._stop_lsn()
            try:
                self._blocks.extend(self._cursor.next_blocks(stop_lsn))
            except Trimmed:
                self._skip_trimmed()
        return bool(self._blocks)

    def _skip_trimmed(self) -> None:
        with self._store.lock:
            lsn = self._store.first_lsn
            self._ready.extend(Entry(lsn, frame) for frame in self._rule.skip_to(self._store))
            self._cursor.lsn = lsn

    def _deliver(self, block: Block) -> list[Entry]:
        stands_to = None
        if block.kind != Kind.STABLE:
            with self._store.lock:
                stands_to = self._store.undone.stands_to(block.lsn)
        frames = self._rule.frames(block, stands_to, lambda: decode(block, self._schema))
        return [Entry(block.lsn, frame) for frame in frames]

    def _stop_lsn(self) -> int:
        store = self._store
        stop_lsn = store.tail.lsn
        if self._durable_only:
            stop_lsn = min(stop_lsn, store.durable_lsn)
        return stop_lsn if self._until_lsn is None else min(stop_lsn, self._until_lsn)

    def _wait(self, deadline: float | None) -> bool:
        """Waits until there is more to read; False if there will not be, or not in time."""
        with self._store.lock:
            while not self._ready and self._cursor.lsn >= self._stop_lsn():
                if self._store.damage is not None and self._at_damage():
                    raise self._store.damage
                if self._stopped or self._store.closed or self._at_end():
                    return False
                wait_s = _LONGEST_WAIT_S
                if deadline is not None:
                    wait_s = min(wait_s, deadline - time.monotonic())
                if wait_s <= 0:
                    return False
                self._store.changed.wait(wait_s)
        return not self._stopped

    def _at_end(self) -> bool:
        return self._until_lsn is not None and self._cursor.lsn >= self._until_lsn

    def _at_damage(self) -> bool:
        return self._cursor.lsn >= self._store.tail.lsn
