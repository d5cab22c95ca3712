"""Rings of shards whose copies stand by: as many losses as there are copies, and shared work.

- Whatever their number, the copies of a shard are on as many servers as the ring had at first, or
  each on one of its own: no loss of one server takes two of them if it can be helped.
- While no more servers of a ring are lost than each shard has further copies, some copy of every
  shard, or of every part of one, is on a server that is left: nothing waits for a disk. That it
  runs, and how soon, is what ``StandbyChecks`` looks at.
- Where a shard is spread, and every shard has a server, no survivor does more than one of a lost
  one's parts: each of them has its second copy somewhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.settings import SECOND_US
from holdfast.simulation.checkers import Violation

if TYPE_CHECKING:
    from holdfast.simulation.world import World


@dataclass(frozen=True)
class _Part:
    """A part of a shard, counted from 0, and where its copies are; or a shard in one part."""

    shard: int
    copies: tuple[str, ...]


@dataclass(frozen=True)
class _Ring:
    shards: int
    parts: tuple[_Part, ...]


class RingChecks:
    """The rings of a world, as they are now."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rings: dict[str, _Ring] = {}
        self._servers: dict[str, set[str]] = {}
        found: dict[str, list[tuple[str, ...]]] = {}
        of_each: dict[str, int] = {}
        for one in world.spec.fragments:
            if one.plan.shard is not None and one.standby is not None:
                name = one.name.partition(".")[0]
                found.setdefault(name, []).append(one.addresses)
                of_each[name] = one.parts
        for name, copies in found.items():
            self.goes_on(copies, len(copies) // of_each[name])

    def goes_on(self, copies: Sequence[tuple[str, ...]], shards: int) -> None:
        """So many shards do the work of a fragment from now on, with these copies of each part."""
        of_each = len(copies) // shards
        parts = tuple(_Part(at // of_each, names) for at, names in enumerate(copies))
        fragment = copies[0][0].partition(".")[0]
        self._rings[fragment] = _Ring(shards, parts)
        server_of = self._world.server_of
        ring = {server_of[name] for names in copies for name in names}
        self._servers.setdefault(fragment, ring)

    def sample(self) -> None:
        for fragment, ring in self._rings.items():
            for one in ring.parts:
                self._check_apart(one, len(self._servers[fragment]))
            servers = {self._world.server_of[name] for one in ring.parts for name in one.copies}
            lost = {one for one in servers if self._world.is_lost(one)}
            copies = len(ring.parts[0].copies)
            if 0 < len(lost) < min(copies, len(servers)):
                for one in ring.parts:
                    self._check_left(one, lost)
                spread = copies == 2 and len(ring.parts) > ring.shards
                if spread and len(servers) == ring.shards:
                    self._check_shared(ring)

    def _check_apart(self, part: _Part, servers: int) -> None:
        at = {self._world.server_of[name] for name in part.copies}
        if len(at) < min(len(part.copies), servers):
            raise Violation("ring", f"of {', '.join(part.copies)} two are on one server")

    def _check_left(self, part: _Part, lost: set[str]) -> None:
        at = [self._world.server_of[name] for name in part.copies]
        if set(at) <= lost:
            names = ", ".join(part.copies)
            raise Violation("ring", f"{names} are at {', '.join(at)}, all of which are lost")

    def _check_shared(self, ring: _Ring) -> None:
        """Whoever stands in does so for one part of a shard and no more."""
        now = self._world.clock.now
        stands_in: Counter[tuple[str, int]] = Counter()
        for part in ring.parts:
            home, heir = (self._world.copies[name] for name in part.copies)
            calm = now - max(home.disturbed_at, heir.disturbed_at) > 3 * SECOND_US
            if calm and not home.up and heir.up and heir.replica is not None:
                stands_in[self._world.server_of[heir.address], part.shard] += 1
        for (server, shard), parts in stands_in.items():
            if parts > 1:
                raise Violation(
                    "ring", f"{server} does {parts} parts of shard {shard + 1}, which is spread"
                )
