"""Deliberate mistakes in elections and the register; a simulated cluster must notice each.

Two that are not here are harmless while the protocol has its other defence, and have tests of their
own (tests/core/test_seat.py): obeying a lower term, since a coordinator without a majority steps
down before another one is elected; voting though a coordinator is heard, since who was cut off from
it mostly knows less than the voters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from holdfast.core import election as election_module
from holdfast.core import register as register_module
from holdfast.core.cluster_messages import (
    Answer,
    AskVote,
    ClusterOrder,
    ClusterRecord,
    Follow,
    Lead,
    Offered,
    Tell,
    Version,
)
from holdfast.core.election import Election
from holdfast.core.register import Holding, Register
from holdfast.core.register import Trigger as RegisterTrigger
from holdfast.core.seat import Seat

# Each is found within so many seeds, from 0.
CLUSTER_RUNS = 100


@dataclass(frozen=True)
class ClusterMutation:
    """A mistake: what replaces what."""

    name: str
    owner: Any
    attribute: str
    make: Callable[[Any], Any]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The world with the mistake in it."""
        original = getattr(self.owner, self.attribute)
        setattr(self.owner, self.attribute, self.make(original))
        try:
            yield
        finally:
            setattr(self.owner, self.attribute, original)


CLUSTER_MUTATIONS: list[ClusterMutation] = []

Make = Callable[[Any], Any]


def planted(into: list[ClusterMutation]) -> Callable[[Any, str], Callable[[Make], Make]]:
    """What lists a function as a mistake: it makes what replaces an attribute."""

    def mutation(owner: Any, attribute: str) -> Callable[[Make], Make]:
        def register(make: Make) -> Make:
            name = make.__name__.replace("_", " ")
            into.append(ClusterMutation(name, owner, attribute, make))
            return make

        return register

    return mutation


_mutation = planted(CLUSTER_MUTATIONS)


@_mutation(Seat, "_led")
def obey_before_it_is_on_disk(original: Any) -> Any:
    def led(self: Seat, sender: str, word: Lead, now: int) -> list[ClusterOrder]:
        original(self, sender, word, now)
        return [Tell(sender, Follow(self.election.term, self.register.version))]

    return led


@_mutation(Election, "vote")
def vote_twice_in_a_term(original: Any) -> Any:
    def vote(self: Election, candidate: str, term: int, newer: bool, now: int) -> bool:
        if term == self.term and candidate != self.name:
            self.voted_for = ""
        return bool(original(self, candidate, term, newer, now))

    return vote


@_mutation(Seat, "_asked")
def vote_for_one_who_knows_less(original: Any) -> Any:
    def asked(self: Seat, sender: str, message: AskVote, now: int) -> Any:
        return original(self, sender, replace(message, version=Version(message.term, 0)), now)

    return asked


@_mutation(Election, "check_quorum")
def coordinate_without_a_majority(original: Any) -> Any:
    return lambda self, now, voters: None


@_mutation(Seat, "_offer")
def look_at_the_quorum_only_when_it_speaks(original: Any) -> Any:
    """Whoever submits often enough keeps a coordinator from ever looking."""

    def offer(self: Seat, offered: Offered, now: int) -> Any:
        for name in self.register.voters:
            self.election.answered(name, now)
        return original(self, offered, now)

    return offer


def _one_less(original: Any) -> Any:
    return lambda count, voters: original(count + 1, voters)


@_mutation(election_module, "is_majority")
def one_vote_less_elects(original: Any) -> Any:
    return _one_less(original)


@_mutation(register_module, "is_majority")
def one_disk_less_settles(original: Any) -> Any:
    return _one_less(original)


@_mutation(Register, "acknowledged")
def count_an_older_version(original: Any) -> Any:
    def acknowledged(self: Register, server: str, version: Version, now: int) -> None:
        original(self, server, self.version, now)

    return acknowledged


@_mutation(Register, "why_not")
def overwrite_what_came_between(original: Any) -> Any:
    def why_not(
        self: Register, term: int, based_on: Version, voters: tuple[str, ...] | None
    ) -> str:
        return str(original(self, term, self.version, voters))

    return why_not


@_mutation(Register, "take")
def take_the_newest_for_settled(original: Any) -> Any:
    def take(self: Register, word: Lead, now: int) -> None:
        original(self, word, now)
        self.settled = self.version
        if self.state is Holding.TAKEN:
            self.move(RegisterTrigger.TOLD, now)

    return take


@_mutation(Seat, "_record")
def forget_the_term(original: Any) -> Any:
    def record(self: Seat) -> ClusterRecord:
        found: ClusterRecord = original(self)
        return replace(found, term=self._kept.term)

    return record


@_mutation(Seat, "_depose")
def acknowledge_when_deposed(original: Any) -> Any:
    def depose(self: Seat, now: int) -> list[ClusterOrder]:
        orders: list[ClusterOrder] = []
        if not self.election.is_coordinating:
            orders += [Answer(offer, version) for offer, version in self._offers]
            self._offers.clear()
        return orders + list(original(self, now))

    return depose
