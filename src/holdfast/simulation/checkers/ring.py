"""Rings of shards whose copies stand by: as many losses as there are copies, and shared work.

- While no more servers of a ring are lost than each shard has further copies, some copy of every
  shard, or of every part of one, is on a server that is left: nothing waits for a disk. That it
  runs, and how soon, is what ``StandbyChecks`` looks at.
- Where a shard is spread, and every shard has a server, no survivor does more than one of a lost
  one's parts: each of them has its second copy somewhere else.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.core.settings import SECOND_US
from holdfast.simulation.checkers import Violation

if TYPE_CHECKING:
    from holdfast.simulation.networks import Fragment
    from holdfast.simulation.world import World


class RingChecks:
    """The rings of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        rings: dict[str, list[Fragment]] = {}
        for one in world.spec.fragments:
            if one.plan.shard is not None and one.standby is not None:
                rings.setdefault(one.name.partition(".")[0], []).append(one)
        self._rings = list(rings.values())

    def sample(self) -> None:
        for ring in self._rings:
            servers = {self._world.server_of[name] for one in ring for name in one.addresses}
            lost = {one for one in servers if self._world.is_lost(one)}
            copies = len(ring[0].addresses)
            if 0 < len(lost) < min(copies, len(servers)):
                for one in ring:
                    self._check_left(one, lost)
                if len(servers) * ring[0].parts == len(ring):
                    self._check_shared(ring)

    def _check_left(self, shard: Fragment, lost: set[str]) -> None:
        at = [self._world.server_of[name] for name in shard.addresses]
        if set(at) <= lost:
            raise Violation(
                "ring", f"{shard.name} has all its copies at {', '.join(at)}, which are lost"
            )

    def _check_shared(self, ring: list[Fragment]) -> None:
        """Whoever stands in does so for one part of a shard and no more."""
        now = self._world.clock.now
        stands_in: Counter[tuple[str, int]] = Counter()
        for part in ring:
            assert part.plan.shard is not None
            if part.parts == 1 or len(part.addresses) != 2:
                continue
            home, heir = (self._world.copies[name] for name in part.addresses)
            calm = now - max(home.disturbed_at, heir.disturbed_at) > 3 * SECOND_US
            if calm and not home.up and heir.up and heir.replica is not None:
                number = (part.plan.shard[0] - 1) // part.parts
                stands_in[self._world.server_of[heir.address], number] += 1
        for (server, shard), parts in stands_in.items():
            if parts > 1:
                raise Violation(
                    "ring", f"{server} does {parts} parts of shard {shard + 1}, which is spread"
                )
