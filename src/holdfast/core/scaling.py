"""Scaling: how many shards a fragment should have, by how busy they are.

Theory of operation. What a shard has to do is its load: the share of its time in which it computes,
or, once it falls behind, how many times as fast its input comes as it is processed. So many shards
have, all together, so many times that to do, and with another number each has its part of it. The
number that fits is the least with which a shard is busy for ``AIM`` of its time.

Changing the number costs the processes and the memory of both for a while, so it follows load
slowly, and never back and forth:

- Between ``AIM`` and ``HIGH`` nothing changes. After any change the load is at ``AIM`` or below it,
  and what varies by less than the room between them changes nothing more.
- More shards come when the load was above ``HIGH`` for ``grow_after_us``, at most twice as many as
  there were. Fewer come when fewer were enough for all of ``shrink_after_us``, and as many as were
  needed at the worst of that time.
- Where more shards have not helped, because what is dear is not what is divided or the machine has
  no more, there are not still more of them, until the load has grown by a quarter or was lower.
- While a shard is lost, recovers or is too young to tell, nothing is known, and time begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.settings import SECOND_US

AIM = 0.5
HIGH = 0.75
# More shards have helped if the load fell by this part of what was to be expected.
HELPED = 0.25
# And where they have not, so much more load is another matter.
MORE = 1.25


@dataclass(frozen=True, slots=True)
class ScalingSettings:
    """From how many shards to how many, and how long load must last before they change."""

    least: int
    most: int
    grow_after_us: int = 30 * SECOND_US
    shrink_after_us: int = 300 * SECOND_US


class Scaling:
    """The number of shards of one fragment."""

    def __init__(self, settings: ScalingSettings) -> None:
        self._settings = settings
        # What was seen last, and since when there is too much to do, or too little.
        self._shards = 0
        self._high_since: int | None = None
        self._low_since: int | None = None
        # The most shards that were needed while there was too little to do.
        self._needed = 0
        # (shards, load) before there were more of them, and the load that more do not help.
        self._before: tuple[int, float] | None = None
        self._helpless: float | None = None

    @property
    def more_do_not_help(self) -> bool:
        """Whether there is too much to do, and more shards have not made it less."""
        return self._helpless is not None

    def look(self, now: int, shards: int, load: float | None) -> int | None:
        """How many shards there should be instead; None to leave it at ``shards``.

        ``load`` is that of the busiest shard, None if it cannot be known now.
        """
        if load is None or shards != self._shards:
            self._shards = shards
            self._high_since = self._low_since = None
        if load is None:
            return None
        fitting = self._fitting(shards, load)
        if fitting > shards and (load > HIGH or shards < self._settings.least):
            self._low_since = None
            return self._grow(now, shards, load, fitting)
        self._high_since = None
        if load <= HIGH:
            self._helpless = None
        if fitting < shards:
            return self._shrink(now, shards, fitting)
        self._low_since = None
        return None

    def _fitting(self, shards: int, load: float) -> int:
        # What is a hair above a whole number is that number.
        needed = int(shards * load / AIM - 1e-6) + 1
        return min(max(needed, self._settings.least), self._settings.most)

    def _grow(self, now: int, shards: int, load: float, fitting: int) -> int | None:
        if self._high_since is None:
            self._high_since = now
        if now - self._high_since < self._settings.grow_after_us:
            return None
        if self._before is not None and self._before[0] < shards:
            before, was = self._before
            hoped_for = was - was * before / shards
            if was - load < HELPED * hoped_for:
                self._helpless = load
        self._before = None
        if self._helpless is not None and load <= MORE * self._helpless:
            return None
        self._helpless = None
        self._before = (shards, load)
        return min(fitting, 2 * shards)

    def _shrink(self, now: int, shards: int, fitting: int) -> int | None:
        if self._low_since is None:
            self._low_since = now
            self._needed = fitting
        self._needed = max(self._needed, fitting)
        if now - self._low_since < self._settings.shrink_after_us:
            return None
        self._low_since = None
        self._before = None
        return self._needed
