"""Which servers were seen to fail together: zones that nobody has told of.

Theory of operation. What is likely to fail, or to be cut off, together must not have two replicas
of a fragment. Some of that is told (a server's zone). The rest shows: servers that fall silent at
about the same time have something in common, a rack, a link, a power line. Once may be chance, so
two are taken for one zone when that has happened ``TIMES`` times, and for at least half of the
failures of one of them. Zones that were told are united with what is seen: if two servers of
different zones fail together again and again, so will the rest.

If most of the servers fall silent at once it is whoever looks that is cut off; that says nothing.
What is learned is forgotten with who has learned it, and learned again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

# Failures that begin within so long of each other are one.
AT_ONCE_US = 10_000_000
TIMES = 2


class FailedTogether:
    """Watches who is silent."""

    def __init__(self) -> None:
        self._silent: frozenset[str] = frozenset()
        # Those that have fallen silent lately, since when.
        self._lately: dict[str, int] = {}
        self._since = 0
        self._failures: dict[str, int] = {}
        self._together: dict[tuple[str, str], int] = {}

    def look(self, known: Collection[str], silent: Collection[str], now: int) -> None:
        """Who is known and who of them is silent now."""
        fresh = set(silent) - self._silent
        self._silent = frozenset(silent)
        if self._lately and now - self._since > AT_ONCE_US:
            self._count(known)
        if fresh and not self._lately:
            self._since = now
        self._lately |= dict.fromkeys(fresh, now)

    def _count(self, known: Collection[str]) -> None:
        """A failure is over, as far as it goes: who was part of it."""
        found = sorted(self._lately)
        self._lately = {}
        if 2 * len(found) > len(known):
            return
        for index, name in enumerate(found):
            self._failures[name] = self._failures.get(name, 0) + 1
            for other in found[index + 1 :]:
                self._together[name, other] = self._together.get((name, other), 0) + 1

    def pairs(self) -> list[tuple[str, str]]:
        """Servers that are taken for one zone."""
        return [
            (one, other)
            for (one, other), times in self._together.items()
            if times >= TIMES and 2 * times >= min(self._failures[one], self._failures[other])
        ]

    def zones(self, told: Mapping[str, str]) -> dict[str, str]:
        """Servers with the zones that were told and seen; "" for one of its own."""
        parent: dict[str, str] = {}

        def root(name: str) -> str:
            while name in parent:
                name = parent[name]
            return name

        def unite(one: str, other: str) -> None:
            first, second = sorted((root(one), root(other)))
            if first != second:
                parent[second] = first

        # Zones go by their names, servers by names that no zone has.
        at = {name: zone or f"/{name}" for name, zone in told.items()}
        for one, other in self.pairs():
            if one in at and other in at:
                unite(at[one], at[other])
        united = set(parent) | set(parent.values())
        return {name: root(zone) if zone in united else told[name] for name, zone in at.items()}
