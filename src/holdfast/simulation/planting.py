"""Registers deliberate bugs; ``mutations`` and ``standby_mutations`` hold them.

Each mutation replaces one function of the protocol by a version with one plausible mistake.
``seeds`` is the number of consecutive seeds, from 0, within which the simulator must find it;
the benchmark ``mutations`` runs them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mutation:
    """A mistake: what replaces what, and how soon it must be found."""

    name: str
    owner: Any
    attribute: str
    make: Callable[[Any], Any]
    seeds: int = 100

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
    owner: Any, attribute: str, seeds: int = 100
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Registers a function that makes a broken version of ``owner.attribute``."""

    def register(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        name = make.__name__.replace("_", " ")
        MUTATIONS.append(Mutation(name, owner, attribute, make, seeds))
        return make

    return register
