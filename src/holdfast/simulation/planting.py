"""Registers deliberate bugs; ``mutations`` and ``standby_mutations`` hold them.

Each mutation replaces one function of the protocol by a version with one plausible mistake.
``seeds`` is the number of consecutive seeds, from 0, within which the simulator must find it. A
mistake that only schedules of one shape bring to light names that shape, and the other seeds are
passed over. The benchmark ``mutations`` runs them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from holdfast.simulation.run import Scenario, scenario_of


@dataclass(frozen=True)
class Mutation:
    """A mistake: what replaces what, and how soon it must be found."""

    name: str
    owner: Any
    attribute: str
    make: Callable[[Any], Any]
    seeds: int
    shape: str | None

    def scenarios(self) -> Iterator[Scenario]:
        """What is run to find it."""
        for scenario in map(scenario_of, range(self.seeds)):
            if self.shape is None or self.shape == scenario.schedule.shape:
                yield scenario

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The world with the mistake in it."""
        original = getattr(self.owner, self.attribute)
        broken = self.make(original)
        setattr(self.owner, self.attribute, broken)
        try:
            yield
        finally:
            setattr(self.owner, self.attribute, original)


MUTATIONS: list[Mutation] = []


def mutation(
    owner: Any, attribute: str, seeds: int = 100, shape: str | None = None
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Registers a function that makes a broken version of ``owner.attribute``."""

    def register(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        name = make.__name__.replace("_", " ")
        MUTATIONS.append(Mutation(name, owner, attribute, make, seeds, shape))
        return make

    return register
