"""What makes lookups in long runs quick takes memory, and a process has so much for it.

A long run has columns once more, row by row, says where hashes begin, and which it does not have
(``open_runs``, ``hash_search``): its *aids*. An aid is made when a lookup first wants it, and gone
with its run. Without any of them lookups find the same. All that a process has of them is bounded,
by the setting ``holdfast.lookup_memory_mib`` in a deployment's ``[spark.config]``, or the
environment's HOLDFAST_LOOKUP_MEMORY_MIB.

Where there is no more room, rows side by side go first, those first that were not looked at for
longest. But what was looked at of late stays, and what is new goes without: else a state a little
larger than the room would make all of its aids anew with every bucket.

To make a large one takes as long as many buckets, so it is made beside them, and lookups do without
it until it is there.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar, cast

from holdfast.errors import InputError

SETTING, VARIABLE = "holdfast.lookup_memory_mib", "HOLDFAST_LOOKUP_MEMORY_MIB"
MOST_MIB = 1024
# What was looked at in the last so many tasks stays.
_OF_LATE = 100

# From so many bytes on an aid is made beside the tasks. Not by a nicer thread: while others have
# the cores, what it holds of the interpreter would keep the tasks waiting.
_LARGE_BYTES = 8 << 20

T = TypeVar("T")


def lookup_memory_mib(config: Mapping[str, str]) -> int:
    """How much a process may have: as the setting says, or the environment."""
    said = config.get(SETTING) or os.environ.get(VARIABLE) or str(MOST_MIB)
    if not said.isascii() or not said.isdigit():
        where = SETTING if config.get(SETTING) else VARIABLE
        raise InputError(f"{where} must be a number of MiB, 0 for none; it is {said!r}")
    return int(said)


class _Aid:
    """Something that a lookup has use for; None where there was no room for it."""

    __slots__ = ("bytes", "goes_first", "looked_at", "value")

    def __init__(self, value: object, size: int, goes_first: bool, now: int) -> None:
        self.value, self.bytes, self.goes_first = value, size, goes_first
        # By the count of tasks; where there was no room, when that was.
        self.looked_at = now


class LookupMemory:
    """What a process has for lookups."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.tasks = 0
        self._all: weakref.WeakSet[Aids] = weakref.WeakSet()
        # Looks run in threads of a driver.
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """How much of it is taken."""
        return sum(aid.bytes for aid in self._held())

    def _held(self) -> list[_Aid]:
        # A copy of each: another thread may add one meanwhile.
        return [aid for aids in list(self._all) for aid in list(aids.held.values())]

    def add(self, aids: Aids) -> None:
        with self._lock:
            self._all.add(aids)

    def make_room(self, size: int) -> bool:
        """Whether there is room for so many bytes, perhaps because others went."""
        with self._lock:
            there = [aid for aid in self._held() if aid.bytes]
            missing = sum(aid.bytes for aid in there) + size - self.most_bytes
            if missing <= 0:
                return True
            old = [aid for aid in there if self.tasks - aid.looked_at > _OF_LATE]
            if sum(aid.bytes for aid in old) < missing:
                return False
            old.sort(key=lambda aid: (not aid.goes_first, aid.looked_at))
            for aid in old:
                missing -= aid.bytes
                aid.value, aid.bytes, aid.looked_at = None, 0, self.tasks
                if missing <= 0:
                    break
            return True


MEMORY = LookupMemory(lookup_memory_mib({}) << 20)


def next_task() -> None:
    """Another task begins."""
    MEMORY.tasks += 1


class Aids:
    """Those of one run."""

    def __init__(self) -> None:
        self.held: dict[Hashable, _Aid] = {}

    def get(
        self, name: Hashable, size: int, make: Callable[[], T], goes_first: bool = False
    ) -> T | None:
        """The one of this name, of so many bytes; made if it is not there. None: there is no room.

        ``goes_first``: lookups can do without it best.
        """
        aid = self.held.get(name)
        if aid is not None:
            if aid.value is not None:
                aid.looked_at = MEMORY.tasks
                return cast(T, aid.value)
            if aid.bytes or MEMORY.tasks - aid.looked_at <= _OF_LATE:
                return None  # it is being made, or there was no room for it of late
        if not self.held:
            MEMORY.add(self)
        has_room = MEMORY.make_room(size)
        if has_room and size >= _LARGE_BYTES:
            aid = self.held[name] = _Aid(None, size, goes_first, MEMORY.tasks)
            making = threading.Thread(target=_make, args=(aid, make), daemon=True)
            making.start()
            return None
        made = make() if has_room else None
        self.held[name] = _Aid(made, 0 if made is None else size, goes_first, MEMORY.tasks)
        return made


# One after the other: the memory that it takes to make them is not counted.
_making = threading.Lock()


def _make(aid: _Aid, make: Callable[[], object]) -> None:
    """Make a large one, in a thread of its own."""
    try:
        with _making:
            made = make()
    except MemoryError:
        aid.bytes = 0  # as if there was no room
        return
    if aid.bytes:  # else it had to make room for others meanwhile
        aid.value = made
