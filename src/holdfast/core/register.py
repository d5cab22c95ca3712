"""One replicated register: the desired state of a cluster, on the disks of a majority.

Theory of operation. There is one value, a few kilobytes, and each version of it replaces the one
before as a whole; so there is no log to keep, to compare or to shorten. A version is the term of
the coordinator that wrote it and a number that counts on. Of two values the one with the greater
version is the newer.

A coordinator *offers* a version to everybody. Each writes it to disk and says so; when a majority
of the voters has it the version is *settled*, and whoever asked for the change is told. Nobody is
told sooner. A vote goes only to servers whose version is as new as the voter's (``core.election``),
so whoever is elected later has it, or something made of it.

What an elected one finds may be on some disks only: offered by a coordinator that was lost before a
majority had it. Nobody may build on it before it is settled, and an older term's version must not
be counted as settled, since one that is newer may lie elsewhere. So the first thing a coordinator
does is to offer what it has again, under its own term.

Others *take* what a coordinator of their term offers, if it is newer than what they have, and learn
with a later word of it that it is settled. Only then is it obeyed.

Who votes is a part of the version. It counts as soon as a server has the version, settled or not,
and differs by one server at most from a settled one of the same term: so the majorities of before
and after share a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from holdfast.core.cluster_messages import ClusterRecord, Lead, Version
from holdfast.core.election import is_majority
from holdfast.core.machine import Machine


class Holding(Enum):
    """What is known of the newest version a server has."""

    SETTLED = "a majority has it"
    OFFERED = "offered, by this server"
    TAKEN = "taken from a coordinator, or found on disk"


class Trigger(Enum):
    OFFER = "offer"
    MAJORITY = "a majority has it"
    TAKE = "take a newer one"
    TOLD = "told that it is settled"
    DEPOSED = "coordinates no longer"


TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (Holding.SETTLED, Trigger.OFFER): Holding.OFFERED,
    (Holding.SETTLED, Trigger.TAKE): Holding.TAKEN,
    (Holding.OFFERED, Trigger.OFFER): Holding.OFFERED,
    (Holding.OFFERED, Trigger.MAJORITY): Holding.SETTLED,
    (Holding.OFFERED, Trigger.DEPOSED): Holding.TAKEN,
    (Holding.TAKEN, Trigger.TAKE): Holding.TAKEN,
    (Holding.TAKEN, Trigger.TOLD): Holding.SETTLED,
    (Holding.TAKEN, Trigger.OFFER): Holding.OFFERED,
}


class Register(Machine[Holding, Trigger]):
    """The register as one server has it."""

    TABLE = TABLE

    def __init__(self, name: str, found: ClusterRecord) -> None:
        super().__init__(name, Holding.TAKEN)
        self.version = found.version
        self.value = found.value
        self.voters = found.voters
        self.settled = Version()
        # Which version each server has on disk, as it told this one as a coordinator.
        self._has: dict[str, Version] = {}

    # -- coordinating --------------------------------------------------------------------

    def begin(self, term: int, now: int) -> None:
        """Elected: what is here is offered again, under this term."""
        self._has.clear()
        self.offer(term, self.value, self.voters, now)

    def offer(self, term: int, value: str, voters: tuple[str, ...], now: int) -> Version:
        """Make a new version of it."""
        self.version = Version(term, self.version.number + 1)
        self.value, self.voters = value, voters
        self.move(Trigger.OFFER, now, str(tuple(self.version)))
        return self.version

    def why_not(self, term: int, based_on: Version, voters: tuple[str, ...] | None) -> str:
        """Why an offer cannot be taken now; "" if it can."""
        if based_on != self.version:
            return (
                f"it rests on version {tuple(based_on)}, and {tuple(self.version)} is the newest: "
                f"read that one and try again"
            )
        if voters is None or set(voters) == set(self.voters):
            return ""
        if self.state is not Holding.SETTLED or self.version.term != term:
            return "who votes changes again only when a majority has the last change; try again"
        if self.name not in voters:
            return f"{self.name} coordinates, and cannot take its own vote away"
        if len(set(voters) ^ set(self.voters)) > 1:
            return "who votes changes by one server at a time"
        return ""

    def acknowledged(self, server: str, version: Version, now: int) -> None:
        """A server has a version on disk, this one included."""
        self._has[server] = max(version, self._has.get(server, Version()))
        if self.state is not Holding.OFFERED:
            return
        having = sum(self._has.get(name, Version()) >= self.version for name in self.voters)
        if is_majority(having, self.voters):
            self.settled = self.version
            self.move(Trigger.MAJORITY, now, str(tuple(self.version)))

    def lacks(self, server: str) -> bool:
        """Whether a server has not said that it has the newest version."""
        return self._has.get(server) != self.version

    def depose(self, now: int) -> None:
        """No longer a coordinator's: what is not settled may or may not be, some day."""
        self._has.clear()
        if self.state is Holding.OFFERED:
            self.move(Trigger.DEPOSED, now)

    # -- following -----------------------------------------------------------------------

    def take(self, word: Lead, now: int) -> None:
        """What a coordinator that is obeyed says of it."""
        if word.value is not None and word.version > self.version:
            self.version, self.value, self.voters = word.version, word.value, word.voters
            self.move(Trigger.TAKE, now, str(tuple(word.version)))
        self.settled = max(self.settled, word.settled)
        if self.state is Holding.TAKEN and self.settled == self.version:
            self.move(Trigger.TOLD, now)

    def validate(self) -> None:
        self.require(
            self.state is not Holding.SETTLED or self.settled >= self.version,
            f"version {tuple(self.version)} is settled and {tuple(self.settled)} is known to be",
        )
