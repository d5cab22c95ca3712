"""Who coordinates a cluster: at most one server in each term, and nobody without a majority.

Theory of operation. Servers vote, one vote in each *term*. Who has the votes of a majority of the
voters in a term coordinates in it; two majorities share a voter, and a voter writes its vote down
before it gives it, so there are never two in one term. Everything a coordinator says carries its
term; who has heard of a higher one refuses it. So two that both believe to coordinate, the old one
cut off and the new one elected, cannot both be obeyed by a majority.

*Silence.* A coordinator speaks to everybody every ``heartbeat_us``. Who has heard nothing for
``silence_us`` and up to as long again, drawn anew each time so that they do not all begin at once,
asks for votes.

*Trial first.* A server that comes back from behind a cut has heard nobody, and would take a new
term and so depose a coordinator with whom nothing is wrong. So it first asks whether it *would* be
elected, and takes a new term only if a majority says yes. Nobody says yes who has heard a
coordinator within ``silence_us``, and neither does a coordinator.

*Only who knows enough.* A vote goes only to one whose register (``core.register``) is as new as the
voter's own. What a majority has on disk is therefore known to whoever is elected.

*Quorum.* A coordinator that has not heard from a majority for ``silence_us`` steps down: it could
settle nothing, and must not look as if it could. A cluster of two that has lost one has no
majority: what runs goes on, and nothing is managed.

Terms and votes that are not on disk yet count for nobody: ``core.seat`` holds back what rests on
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from holdfast.core.machine import Machine, PeerError


class ElectionState(Enum):
    """What a server is in the present term."""

    FOLLOWING = "following"
    TRYING = "trying"
    STANDING = "standing"
    COORDINATING = "coordinating"


class Trigger(Enum):
    SILENCE = "nobody coordinates"
    WOULD_WIN = "a majority would vote for it"
    WON = "a majority has voted for it"
    NO_MAJORITY = "too few have answered"
    HIGHER_TERM = "a higher term is heard of"
    COORDINATOR_HEARD = "another one coordinates"
    OUT_OF_TOUCH = "a majority has not been heard for too long"


TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (ElectionState.FOLLOWING, Trigger.SILENCE): ElectionState.TRYING,
    (ElectionState.FOLLOWING, Trigger.HIGHER_TERM): ElectionState.FOLLOWING,
    (ElectionState.TRYING, Trigger.WOULD_WIN): ElectionState.STANDING,
    (ElectionState.TRYING, Trigger.NO_MAJORITY): ElectionState.FOLLOWING,
    (ElectionState.TRYING, Trigger.HIGHER_TERM): ElectionState.FOLLOWING,
    (ElectionState.TRYING, Trigger.COORDINATOR_HEARD): ElectionState.FOLLOWING,
    (ElectionState.STANDING, Trigger.WON): ElectionState.COORDINATING,
    (ElectionState.STANDING, Trigger.NO_MAJORITY): ElectionState.FOLLOWING,
    (ElectionState.STANDING, Trigger.HIGHER_TERM): ElectionState.FOLLOWING,
    (ElectionState.STANDING, Trigger.COORDINATOR_HEARD): ElectionState.FOLLOWING,
    (ElectionState.COORDINATING, Trigger.HIGHER_TERM): ElectionState.FOLLOWING,
    (ElectionState.COORDINATING, Trigger.OUT_OF_TOUCH): ElectionState.FOLLOWING,
}


@dataclass(frozen=True, slots=True)
class ElectionTiming:
    """How often a coordinator speaks, and how long nobody misses it.

    The silence is several heartbeats and many round trips of the cluster's longest link.
    """

    heartbeat_us: int = 500_000
    silence_us: int = 2_500_000

    def __post_init__(self) -> None:
        if not 0 < 3 * self.heartbeat_us <= self.silence_us:
            raise ValueError(
                f"silence is at least three heartbeats, got {self.silence_us} and "
                f"{self.heartbeat_us} microseconds"
            )


class Election(Machine[ElectionState, Trigger]):
    """One server's part in the elections of its cluster."""

    TABLE = TABLE

    def __init__(
        self,
        name: str,
        timing: ElectionTiming,
        draw: Callable[[], float],
        term: int = 0,
        voted_for: str = "",
    ) -> None:
        """``draw`` gives numbers from 0 up to 1, by chance; term and vote are those on disk."""
        super().__init__(name, ElectionState.FOLLOWING)
        self.term = term
        self.voted_for = voted_for
        self.coordinator = ""
        self.deadline = 0
        self._timing = timing
        self._draw = draw
        self._coordinator_heard = -timing.silence_us
        self._yes: set[str] = set()
        # When each voter was last heard by this server as a coordinator.
        self._heard: dict[str, int] = {}

    @property
    def is_coordinating(self) -> bool:
        return self.state is ElectionState.COORDINATING

    def begin(self, now: int) -> None:
        """Wait for a coordinator. One may be there, so a vote just given must not be hurried."""
        self._coordinator_heard = now
        self._wait(now)

    def _wait(self, now: int) -> None:
        self.deadline = now + int(self._timing.silence_us * (1 + self._draw()))

    # -- asking for votes ----------------------------------------------------------------

    def passes(self, now: int, voters: tuple[str, ...]) -> bool:
        """Time has passed; whether votes are to be asked for now: on trial, to begin with."""
        if self.is_coordinating:
            return False
        if now < self.deadline:
            return False
        if self.state is not ElectionState.FOLLOWING:
            self.move(Trigger.NO_MAJORITY, now, f"{len(self._yes)} of {len(voters)} in {self.term}")
            self._wait(now)
            return False
        self.coordinator = ""
        self._wait(now)
        if self.name not in voters:
            return False
        self.move(Trigger.SILENCE, now)
        self._yes = {self.name}
        return True

    def check_quorum(self, now: int, voters: tuple[str, ...]) -> None:
        """Step down without a majority; asked with every fact, whatever else there is to do."""
        if not self.is_coordinating:
            return
        heard = sum(
            name == self.name or self._is_near(self._heard.get(name), now) for name in voters
        )
        if not is_majority(heard, voters):
            self._step_down(Trigger.OUT_OF_TOUCH, now)

    def _is_near(self, heard_at: int | None, now: int) -> bool:
        return heard_at is not None and now - heard_at < self._timing.silence_us

    def is_ready_to_stand(self, now: int, voters: tuple[str, ...]) -> bool:
        """Whether the trial is won: then there is a new term, and a vote for itself to keep."""
        if self.state is not ElectionState.TRYING or not self._has_majority(voters):
            return False
        self.move(Trigger.WOULD_WIN, now, f"for term {self.term + 1}")
        self.term, self.voted_for = self.term + 1, self.name
        self._yes = set()
        self._wait(now)
        return True

    def count(self, voter: str, term: int, is_trial: bool, now: int) -> None:
        """A voter has said yes; its own vote counts once it is on disk."""
        if is_trial and self.state is ElectionState.TRYING and term == self.term + 1:
            self._yes.add(voter)
        elif not is_trial and self.state is ElectionState.STANDING and term == self.term:
            self._yes.add(voter)
            self._heard[voter] = now

    def is_elected(self, now: int, voters: tuple[str, ...]) -> bool:
        """Whether the votes are enough: from now on it coordinates."""
        if self.state is not ElectionState.STANDING or not self._has_majority(voters):
            return False
        self.move(Trigger.WON, now, f"term {self.term}")
        self.coordinator = self.name
        return True

    def _has_majority(self, voters: tuple[str, ...]) -> bool:
        return is_majority(len(self._yes.intersection(voters)), voters)

    # -- giving votes --------------------------------------------------------------------

    def would_vote(self, term: int, newer: bool, now: int) -> bool:
        """The answer to a trial. ``newer``: the asker's register is at least as new as ours."""
        return newer and term > self.term and not self.has_coordinator(now)

    def vote(self, candidate: str, term: int, newer: bool, now: int) -> bool:
        """Whether it gets the vote of this term, which is then to be kept."""
        if self.has_coordinator(now):
            return False
        self.hear_of(term, now)
        if term < self.term or not newer or self.voted_for not in ("", candidate):
            return False
        self.voted_for = candidate
        self._wait(now)
        return True

    def has_coordinator(self, now: int) -> bool:
        """Whether somebody coordinates, as far as this server can know."""
        if self.is_coordinating:
            return True
        return now - self._coordinator_heard < self._timing.silence_us

    # -- obeying -------------------------------------------------------------------------

    def hear_of(self, term: int, now: int) -> bool:
        """Obey a higher term, if it is one; it is then to be kept."""
        if term <= self.term:
            return False
        self.term, self.voted_for = term, ""
        self._step_down(Trigger.HIGHER_TERM, now)
        return True

    def obey(self, coordinator: str, term: int, now: int) -> bool:
        """A coordinator speaks; whether it is one that is obeyed."""
        if term < self.term:
            return False
        self.hear_of(term, now)
        if self.is_coordinating or self.coordinator not in ("", coordinator):
            raise PeerError(
                f"{self.name}: {coordinator} coordinates in term {term}, in which "
                f"{self.coordinator} does: a server has forgotten its vote, or two go by one "
                f"name\n{self.story()}"
            )
        if self.state is not ElectionState.FOLLOWING:
            self.move(Trigger.COORDINATOR_HEARD, now, coordinator)
        self.coordinator = coordinator
        self._coordinator_heard = now
        self._wait(now)
        return True

    def answered(self, voter: str, now: int) -> None:
        """Somebody who obeys this coordinator has answered."""
        self._heard[voter] = now

    def _step_down(self, trigger: Trigger, now: int) -> None:
        self.move(trigger, now, f"term {self.term}")
        self.coordinator = ""
        self._heard.clear()
        self._wait(now)

    def validate(self) -> None:
        self.require(
            not self.is_coordinating or self.voted_for == self.name,
            f"it coordinates in term {self.term} and voted for {self.voted_for!r}",
        )


def is_majority(count: int, voters: tuple[str, ...]) -> bool:
    """Whether so many are more than half of the voters."""
    return 2 * count > len(voters)
