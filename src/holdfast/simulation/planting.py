"""Registers deliberate bugs; ``mutations`` and ``standby_mutations`` hold them.

Each mutation replaces one function of the protocol by a version with one plausible mistake. The
simulator must find each within ``RUNS`` runs, of consecutive seeds from 0: one number for all. A
mistake that only schedules of one shape bring to light names that shape, and every run has a
schedule of it. The benchmark ``mutations`` runs them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import Any

from holdfast.simulation.run import Scenario, shaped

RUNS = 100


@dataclass(frozen=True)
class Mutation:
    """A mistake: what replaces what, and in which schedules it shows."""

    name: str
    owner: Any
    attribute: str
    make: Callable[[Any], Any]
    shape: str | None

    def scenarios(self, before: int | None = None) -> Iterator[Scenario]:
        """What is run to find it; first the seed that has found it before, if one has."""
        seeds = count() if before is None else chain((before,), count())
        # Some networks have no pair of copies for a shape that needs one.
        found = (shaped(seed, self.shape) for seed in seeds)
        return islice((scenario for scenario in found if scenario is not None), RUNS)

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
    owner: Any, attribute: str, shape: str | None = None
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Registers a function that makes a broken version of ``owner.attribute``."""

    def register(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        name = make.__name__.replace("_", " ")
        MUTATIONS.append(Mutation(name, owner, attribute, make, shape))
        return make

    return register
