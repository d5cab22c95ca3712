"""What the servers of a cluster say to one another, and what one of them is told and orders.

A *term* is the number of one election; a *version* orders what the register held: by the term of
the coordinator that wrote it, then by its number. Every word of a coordinator carries its term,
and who knows a higher one refuses it (``core.fence`` has the same rule for names).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Version(NamedTuple):
    """Which of two values of the register is the newer one."""

    term: int = 0
    number: int = 0


NO_VERSION = Version()


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """What a server must not forget, on disk before it says anything that rests on it.

    voted_for  whom it gave its vote in this term; "" for nobody.
    value      the desired state; what it is, nobody here looks at.
    voters     who counts for a majority, from this version on.
    """

    term: int = 0
    voted_for: str = ""
    version: Version = NO_VERSION
    value: str = ""
    voters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AskVote:
    """Asks for a vote in a term. ``is_trial``: would you? Nothing is promised by the answer."""

    term: int
    version: Version
    is_trial: bool


@dataclass(frozen=True, slots=True)
class Vote:
    """The answer. ``term`` is the one that was asked for, ``known`` the highest the voter knows."""

    term: int
    known: int
    granted: bool
    is_trial: bool


@dataclass(frozen=True, slots=True)
class Lead:
    """A coordinator's word: obey me, this is the newest version, and this one a majority has.

    value   comes for those who are behind, None for the others; with it who votes.
    """

    term: int
    version: Version
    settled: Version
    value: str | None = None
    voters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Follow:
    """The answer: the highest term known, and the version that is on this server's disk."""

    term: int
    version: Version


ClusterMessage = AskVote | Vote | Lead | Follow


# -- facts: what a server is told --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heard:
    """A message of another server has come."""

    sender: str
    message: ClusterMessage


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The time that was asked for has come."""


@dataclass(frozen=True, slots=True)
class RecordKept:
    """The record with this number is on disk."""

    number: int


@dataclass(frozen=True, slots=True)
class RecordNotKept:
    """It could not be written; the disk has the one before."""

    number: int


@dataclass(frozen=True, slots=True)
class Offered:
    """Somebody wants the register to hold another value.

    offer     how the answer names it.
    based_on  the version that was read before it was changed: an offer that rests on an older one
              is refused, or it would undo what came between.
    voters    who votes from then on; None: who does now.
    """

    offer: int
    based_on: Version
    value: str
    voters: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Met:
    """These servers are there, too, and are told what is decided; they need not vote."""

    servers: tuple[str, ...]


ClusterFact = Heard | TimePassed | RecordKept | RecordNotKept | Offered | Met


# -- orders: what it has done ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a message; it may be lost."""

    to: str
    message: ClusterMessage


@dataclass(frozen=True, slots=True)
class KeepRecord:
    """Write the record to disk, whole or not at all, and say what came of it."""

    number: int
    record: ClusterRecord


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Say when this time has come; the newest of these counts."""

    at: int


@dataclass(frozen=True, slots=True)
class Obey:
    """A majority has this value on disk: it is the desired state now."""

    version: Version
    value: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an offer: the version under which a majority has it, or why not.

    is_known  False: nobody knows whether it will count; it may have reached somebody.
    """

    offer: int
    version: Version | None
    why: str = ""
    is_known: bool = True


ClusterOrder = Tell | KeepRecord | WakeAt | Obey | Answer
