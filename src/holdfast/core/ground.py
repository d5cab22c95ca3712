"""The ground a query stands on: the servers that are there now, how far apart they are, what flows.

Servers that are away are left out with everything that is pinned to them; what remains is enough to
say where one more replica would cost least, and why each is where it is (``placement.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.core.placement import Choice, Delays, Placed, Placement, Query, Site

# What a tuple must be under way for less, on the mean, for a replica to move.
_WORTH_MS = 2.0


@dataclass(frozen=True)
class Ground:
    """What a coordinator knows when it looks.

    delays  in milliseconds, between the servers that are there.
    sites   those servers as they are preferred; then again with fewer of them ruled out, for when
            there are too few: better one that is busy than none.
    """

    query: Query
    delays: Delays
    sites: tuple[Sequence[Site], ...]

    def choose(self, wanted: Mapping[str, int], fixed: Mapping[str, Sequence[str]]) -> Placed:
        """Places for so many replicas of each fragment; ``lacking`` tells where there are none."""
        for sites in self.sites:
            placed = Placement(sites, self.delays, self.query, fixed).place(wanted)
            if not placed.lacking:
                break
        return placed

    def one_more(
        self, fragment: str, beside: Sequence[str], places: Mapping[str, Sequence[str]]
    ) -> str | None:
        """The server for one more replica beside those that are left; None if there is none."""
        fixed = self._there(places)
        fixed[fragment] = list(beside)
        wanted = {each: len(found) for each, found in fixed.items()}
        wanted[fragment] += 1
        placed = self._reached().choose(wanted, fixed)
        return None if fragment in placed.lacking else placed.places[fragment][-1]

    def explain(self, places: Mapping[str, Sequence[str]]) -> list[Choice]:
        """Why each replica is where it is, by what is measured now."""
        there, reached = self._there(places), self._reached()
        placement = Placement(self.sites[0], self.delays, reached.query, there)
        return [
            placement.explain(name, server) for name, found in there.items() for server in found
        ]

    def is_worth_it(self, choice: Choice) -> bool:
        """Whether tuples of its streams would be under way for some milliseconds less."""
        rate = sum(
            flow.rate
            for flow in self.query.flows
            if choice.fragment in (flow.producer, flow.consumer)
        )
        saved = 0.0 if choice.runner_up is None else choice.cost - choice.runner_up[1]
        return choice.runner_up is not None and saved >= _WORTH_MS * rate

    def zone(self, server: str) -> str:
        """What a server fails together with."""
        return next((site.fails_with for site in self.sites[0] if site.name == server), server)

    def _there(self, places: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        return {
            fragment: [server for server in found if server in self.delays]
            for fragment, found in places.items()
        }

    def _reached(self) -> Ground:
        """Without what is pinned to servers that are away."""
        pinned = {each: at for each, at in self.query.pinned.items() if at in self.delays}
        known = {*pinned, *self.query.fragments}
        flows = tuple(each for each in self.query.flows if {each.producer, each.consumer} <= known)
        return replace(self, query=replace(self.query, pinned=pinned, flows=flows))
