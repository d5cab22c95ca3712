"""One server's seat in its cluster: the election, the register, and the disk before every word.

Theory of operation. A seat is the driver of ``core.election`` and ``core.register``: it takes facts
and the time, and returns orders. What it keeps is one small record: the term, the vote, and the
register's newest version. Whatever promises something goes out only when the record it rests on is
on disk:

    a vote, one's own, too      term and vote
    a word of obedience         term and version
    a share in a majority       the version, on this disk as on any other

Records are written one at a time, the newest of what has come up meanwhile. What waits is looked at
again when its time has come: a vote in a term that is over, or obedience to one that nobody obeys
any more, is not said at all. A disk that fails holds back promises and nothing else; it is tried
again with the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core.cluster_messages import (
    Answer,
    AskVote,
    ClusterFact,
    ClusterMessage,
    ClusterOrder,
    ClusterRecord,
    Follow,
    Heard,
    KeepRecord,
    Lead,
    Met,
    Obey,
    Offered,
    RecordKept,
    RecordNotKept,
    Tell,
    TimePassed,
    Version,
    Vote,
    WakeAt,
)
from holdfast.core.election import Election, ElectionTiming
from holdfast.core.machine import ProtocolError
from holdfast.core.register import Holding, Register

Say = Callable[[int], list[ClusterOrder]]

_NOT_COORDINATING = "{name} does not coordinate{who}"


@dataclass(frozen=True, slots=True)
class SeatView:
    """Who coordinates as far as a server knows, "" for nobody; and the register as it has it."""

    is_coordinating: bool
    coordinator: str
    term: int
    version: Version
    value: str
    voters: tuple[str, ...]


class Seat:
    """What one server of a cluster decides."""

    def __init__(
        self,
        name: str,
        timing: ElectionTiming,
        draw: Callable[[], float],
        found: ClusterRecord,
        now: int,
    ) -> None:
        """``found``: the record on disk; of a server's first start, one that names the voters."""
        self.name = name
        self._timing = timing
        self.election = Election(name, timing, draw, found.term, found.voted_for)
        self.register = Register(name, found)
        self._met: tuple[str, ...] = ()
        self._kept = found
        self._writing: KeepRecord | None = None
        self._number = 0
        self._is_failing = False
        # What goes out when the record that it rests on is on disk.
        self._held: dict[tuple[str, str], Say] = {}
        self._offers: list[tuple[int, Version]] = []
        self._is_leading = False
        self._obeyed = Version()
        self._speaks_at = 0
        # The last version each was sent, and when.
        self._sent: dict[str, tuple[Version, int]] = {}
        self.election.begin(now)

    @property
    def has_majority(self) -> bool:
        """Whether it coordinates, or obeys somebody who does, as far as it knows."""
        return bool(self.election.coordinator)

    def view(self) -> SeatView:
        """For status, and for those who manage."""
        election, register = self.election, self.register
        return SeatView(
            election.is_coordinating,
            election.coordinator,
            election.term,
            register.version,
            register.value,
            register.voters,
        )

    def handle(self, fact: ClusterFact, now: int) -> list[ClusterOrder]:
        """The only way to change it."""
        self.election.check_quorum(now, self.register.voters)
        orders = self._depose(now)
        orders += self._take(fact, now)
        orders += self._depose(now)
        orders += self._go_on(now)
        return orders

    def _take(self, fact: ClusterFact, now: int) -> list[ClusterOrder]:
        match fact:
            case Heard(sender, message):
                return self._hear(sender, message, now)
            case TimePassed():
                return self._pass(now)
            case RecordKept(number):
                return self._was_kept(number, now)
            case RecordNotKept():
                self._writing, self._is_failing = None, True
                return []
            case Offered():
                return self._offer(fact, now)
            case Met(servers):
                self._met = servers
                return []

    # -- messages ------------------------------------------------------------------------

    def _hear(self, sender: str, message: ClusterMessage, now: int) -> list[ClusterOrder]:
        match message:
            case AskVote():
                return self._asked(sender, message, now)
            case Vote():
                if not message.granted:
                    self.election.hear_of(message.known, now)
                else:
                    self.election.count(sender, message.term, message.is_trial, now)
                return []
            case Lead():
                return self._led(sender, message, now)
            case Follow(term, version):
                if self.election.hear_of(term, now) or not self.election.is_coordinating:
                    return []
                if term == self.election.term:
                    self.election.answered(sender, now)
                    self.register.acknowledged(sender, version, now)
                    return self._tell_value(sender, now)
                return []

    def _asked(self, sender: str, message: AskVote, now: int) -> list[ClusterOrder]:
        newer = message.version >= self.register.version
        term, election = message.term, self.election
        if message.is_trial:
            yes = election.would_vote(term, newer, now)
            return self._when_kept(
                "trial",
                sender,
                lambda now: [Tell(sender, Vote(term, election.term, yes, is_trial=True))],
            )
        yes = election.vote(sender, term, newer, now)

        def answer(now: int) -> list[ClusterOrder]:
            if yes and (election.term != term or election.voted_for != sender):
                return []  # a later term has come meanwhile
            return [Tell(sender, Vote(term, election.term, yes, is_trial=False))]

        return self._when_kept("vote", sender, answer)

    def _led(self, sender: str, word: Lead, now: int) -> list[ClusterOrder]:
        unknown: list[ClusterOrder] = []
        if self.election.obey(sender, word.term, now):
            unknown = self._depose(now)
            self.register.take(word, now)

        def answer(now: int) -> list[ClusterOrder]:
            # Its own term, which says that a lower one is refused; and what this disk has.
            return [Tell(sender, Follow(self.election.term, self._kept.version))]

        return unknown + self._when_kept("follow", sender, answer)

    # -- time ----------------------------------------------------------------------------

    def _pass(self, now: int) -> list[ClusterOrder]:
        self._is_failing = False  # try again
        if self.election.passes(now, self.register.voters):
            ask = AskVote(self.election.term + 1, self.register.version, is_trial=True)
            return [Tell(name, ask) for name in self._other_voters()]
        if self.election.is_coordinating and now >= self._speaks_at:
            return self._speak(now)
        return []

    def _speak(self, now: int) -> list[ClusterOrder]:
        """Tell everybody who coordinates."""
        self._speaks_at = now + self._timing.heartbeat_us
        return [Tell(name, self._word(name, now)) for name in self._others()]

    def _word(self, to: str, now: int) -> Lead:
        """With the value for one that lacks it, if it was not just sent."""
        register, term = self.register, self.election.term
        version, at = self._sent.get(to, (Version(), 0))
        if not register.lacks(to) or (
            version == register.version and now - at < self._timing.silence_us
        ):
            return Lead(term, register.version, register.settled)
        self._sent[to] = (register.version, now)
        return Lead(term, register.version, register.settled, register.value, register.voters)

    def _tell_value(self, to: str, now: int) -> list[ClusterOrder]:
        word = self._word(to, now)
        return [Tell(to, word)] if word.value is not None else []

    def _others(self) -> list[str]:
        return sorted({*self.register.voters, *self._met} - {self.name})

    def _other_voters(self) -> list[str]:
        return [name for name in self.register.voters if name != self.name]

    # -- the register --------------------------------------------------------------------

    def _offer(self, offered: Offered, now: int) -> list[ClusterOrder]:
        election, register = self.election, self.register
        if not election.is_coordinating:
            who = f"; {election.coordinator} does" if election.coordinator else "; nobody does now"
            why = _NOT_COORDINATING.format(name=self.name, who=who)
            return [Answer(offered.offer, None, why)]
        why = register.why_not(election.term, offered.based_on, offered.voters)
        if why:
            return [Answer(offered.offer, None, why)]
        voters = register.voters if offered.voters is None else offered.voters
        version = register.offer(election.term, offered.value, voters, now)
        self._offers.append((offered.offer, version))
        return self._speak(now)

    def _depose(self, now: int) -> list[ClusterOrder]:
        """If it coordinates no longer: nobody knows what becomes of what it offered last."""
        if self.election.is_coordinating or not self._is_leading:
            return []
        self._is_leading = False
        self.register.depose(now)
        why = f"{self.name} coordinates no longer; ask again whether it was taken"
        unknown: list[ClusterOrder] = [
            Answer(offer, None, why, is_known=False) for offer, _ in self._offers
        ]
        self._offers.clear()
        self._sent.clear()
        return unknown

    # -- going on ------------------------------------------------------------------------

    def _go_on(self, now: int) -> list[ClusterOrder]:
        """What follows from all that is known now."""
        election, register = self.election, self.register
        orders = self._stand_and_keep(now)
        if election.is_coordinating:
            register.acknowledged(self.name, self._kept.version, now)
        orders += self._settle(now)
        due = election.deadline
        if election.is_coordinating:
            due = self._speaks_at
        elif self._writing is None and self._kept != self._record():
            due = min(due, now + self._timing.heartbeat_us)
        orders.append(WakeAt(due))
        return orders

    def _stand_and_keep(self, now: int) -> list[ClusterOrder]:
        """Go on with the election, write what is not on disk, and say what need not wait for it."""
        orders: list[ClusterOrder] = []
        election, register = self.election, self.register
        while True:
            if election.is_ready_to_stand(now, register.voters):
                self._when_kept("stand", self.name, self._stand)
            if election.is_elected(now, register.voters):
                self._is_leading = True
                register.begin(election.term, now)
                orders += self._speak(now)
            orders += self._keep()
            if self._writing is not None or not self._held or self._kept != self._record():
                return orders
            held, self._held = self._held, {}
            for say in held.values():
                orders += say(now)

    def _stand(self, now: int) -> list[ClusterOrder]:
        """Its own vote is on disk: it counts, and the others are asked."""
        election = self.election
        if election.voted_for != self.name:
            return []
        election.count(self.name, election.term, is_trial=False, now=now)
        ask = AskVote(election.term, self.register.version, is_trial=False)
        return [Tell(name, ask) for name in self._other_voters()]

    def _settle(self, now: int) -> list[ClusterOrder]:
        orders: list[ClusterOrder] = []
        register = self.register
        if register.settled == self._kept.version > self._obeyed:
            self._obeyed = self._kept.version
            orders.append(Obey(self._kept.version, self._kept.value))
        if register.state is not Holding.SETTLED or not self._offers:
            return orders
        orders += [Answer(offer, version) for offer, version in self._offers]
        self._offers.clear()
        # The others learn at once that it is settled.
        return orders + self._speak(now)

    # -- the disk ------------------------------------------------------------------------

    def _record(self) -> ClusterRecord:
        election, register = self.election, self.register
        return ClusterRecord(
            election.term, election.voted_for, register.version, register.value, register.voters
        )

    def _when_kept(self, what: str, to: str, say: Say) -> list[ClusterOrder]:
        """Say something once what it rests on is on disk; the newest of its kind to each."""
        self._held[what, to] = say
        return []

    def _keep(self) -> list[ClusterOrder]:
        """Write what is not on disk, unless that was just tried in vain."""
        record = self._record()
        if self._writing is not None or record == self._kept or self._is_failing:
            return []
        self._number += 1
        self._writing = KeepRecord(self._number, record)
        return [self._writing]

    def _was_kept(self, number: int, now: int) -> list[ClusterOrder]:
        writing = self._writing
        if writing is None or writing.number != number:
            raise ProtocolError(
                f"{self.name}: record {number} is on disk and was not to be written"
            )
        self._kept, self._writing = writing.record, None
        return []

    def validate(self) -> None:
        self.election.validate()
        self.register.validate()
        if self._kept.version > self.register.version or self._kept.term > self.election.term:
            raise ProtocolError(f"{self.name}: what is on disk is not obeyed: {self._kept}")
