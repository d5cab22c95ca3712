"""What a coordinator decides about the replicas of one submission: one order at a time.

Theory of operation. What is to be, replicas and their servers, is in the register; what is, the
coordinator sees when it looks: which servers have been silent for too long, and what replicas say
of themselves. Every order makes a new version of the register out of the newest one, and only a
version that a majority has on disk is obeyed. So orders of two coordinators never mix, and one that
is deposed in the middle leaves all of an order or nothing.

A replica ends only when others, as many as are wanted, have said themselves that they are stable:
what was on its disk is then on theirs. So a move makes the new before it ends the old, and a server
that is lost is replaced before it is forgotten. Somebody is always there who has the state, unless
every server that has it is away, and then its replicas are waited for.

A replica that has joined provides its results from where it joined on, and a client that was away
may need older ones. So one that has older ones than any other does not end while its server is
there: not before nobody needs them any more. What only a lost server has of them is given up.

    what is seen                                    what is decided
    a server is lost, and too few replicas left     AddReplica where it costs least, like one left
    ... and one of those left is silent, too        wait until it is heard, or lost
    ... enough left, all of them stable             RemoveReplicas of those that are lost
    ... enough left, not all stable                 wait
    ... nobody left, or a pair of copies            wait for the server: it has what nobody has
    more replicas than are wanted, all stable       RemoveReplicas: the one that moves, else one of
                                                    two that fail together, else the dearest
    ... not all stable                              wait
    ... it alone has older results                  wait, or another one if none moves
    a replica has long been dearer than elsewhere   AddReplica there, instead of it (adaptation.py)

Fragments are looked at in their order. Nothing is moved while anything is lost or waited for: there
is one change at a time, and each is looked at again with everybody's state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.core.adaptation import Adaptation, AdaptationSettings
from holdfast.core.consistency import NodeState
from holdfast.core.ground import Ground
from holdfast.core.placement import Choice

STABLE = NodeState.STABLE.value


@dataclass(frozen=True)
class Replicas:
    """The replicas of a fragment, as the register has them.

    at       the server of each that takes part.
    wanted   how many there are to be.
    moves    replicas that go when others are stable, and which.
    is_pair  two copies of which one stands by: neither more nor less, where they are.
    stays    somebody has said where they are.
    """

    fragment: str
    at: Mapping[str, str]
    wanted: int
    moves: Mapping[str, str] = field(default_factory=dict)
    is_pair: bool = False
    stays: bool = False


@dataclass(frozen=True)
class Kept:
    """What a replica has of its results.

    incarnation  the life in which it joined; 0 if it never did.
    first_ids    the first tuple of each output stream that it has not trimmed.
    """

    incarnation: int
    first_ids: Mapping[str, int]

    def has_all_of(self, other: Kept) -> bool:
        """Whether it has whatever may be asked of the other one.

        Who never joined has trimmed only what all have acknowledged.
        """
        return not self.incarnation or all(
            self.first_ids.get(name, first + 1) <= first for name, first in other.first_ids.items()
        )


@dataclass(frozen=True)
class Seen:
    """What a coordinator sees at a look.

    lost    servers that have been silent for too long.
    states  what replicas say of themselves, of those that were asked for.
    rates   whether it is known what flows: nothing moves for a guess.
    kept    what those have of their results who say so.
    """

    lost: frozenset[str]
    states: Mapping[str, str]
    ground: Ground
    rates: bool
    kept: Mapping[str, Kept]


@dataclass(frozen=True)
class AddReplica:
    """One more at a server, which takes the state of others.

    like        another one, which has what it needs.
    lost        the one whose place it takes, if its server is lost.
    instead_of  the one that goes when it is stable, if it moves.
    """

    fragment: str
    like: str
    server: str
    lost: str | None = None
    instead_of: str | None = None


@dataclass(frozen=True)
class RemoveReplicas:
    """These take part no longer."""

    fragment: str
    replicas: tuple[str, ...]


Order = AddReplica | RemoveReplicas


@dataclass(frozen=True)
class Decision:
    """What is to be done, and what is to be said of it or of what is waited for."""

    order: Order | None = None
    notes: tuple[str, ...] = ()


class Managing:
    """Decides about one submission."""

    def __init__(self, settings: AdaptationSettings | None = None) -> None:
        self._adaptation = Adaptation(settings)
        # What each had at the first of the looks that have followed one another since.
        self._kept: dict[str, Kept] = {}

    def asks(self, fragments: Sequence[Replicas], lost: frozenset[str]) -> list[str]:
        """The replicas whose state decides something now."""
        found: list[str] = []
        for each in fragments:
            left = [one for one, server in each.at.items() if server not in lost]
            if not each.is_pair and (len(left) < len(each.at) or len(left) > each.wanted):
                found += left
        return found

    def look(self, fragments: Sequence[Replicas], seen: Seen, now: int) -> Decision:
        """The order that is due, if one is."""
        self._note_kept(seen.kept)
        places = {each.fragment: list(each.at.values()) for each in fragments}
        notes: list[str] = []
        for each in fragments:
            if any(server in seen.lost for server in each.at.values()):
                order, note = self._replace(each, seen, places)
                if order is not None:
                    return self._instead(Decision(order))
                notes.append(note)
        if notes:
            return self._instead(Decision(notes=tuple(notes)))
        choices = seen.ground.explain(places)
        for each in fragments:
            if len(each.at) > each.wanted and not each.is_pair:
                return self._instead(self._one_fewer(each, seen, choices))
        return self._move(fragments, seen, choices, now)

    def _instead(self, decision: Decision) -> Decision:
        """Something else is done than moving: what was better before may be so no longer."""
        self._adaptation.forget()
        return decision

    def _replace(
        self, each: Replicas, seen: Seen, places: Mapping[str, Sequence[str]]
    ) -> tuple[Order | None, str]:
        gone = [one for one, server in each.at.items() if server in seen.lost]
        left = [one for one in each.at if one not in gone]
        if each.is_pair or not left:
            where = ", ".join(sorted({each.at[one] for one in gone}))
            return None, f"{', '.join(gone)} waits for {where}: nobody else has what it has on disk"
        if len(left) < each.wanted:
            beside = [each.at[one] for one in left]
            silent = [server for server in beside if server not in seen.ground.delays]
            if silent:
                return None, f"{gone[0]} is lost; {', '.join(silent)} is silent, perhaps lost, too"
            place = seen.ground.one_more(each.fragment, beside, places)
            if place is None:
                return None, f"no server that is there can take the place of {gone[0]}"
            return AddReplica(each.fragment, left[0], place, lost=gone[0]), ""
        waiting = [one for one in left if seen.states.get(one) != STABLE]
        if waiting:
            return (
                None,
                f"{', '.join(waiting)} is not stable yet; {', '.join(gone)} goes when it is",
            )
        return RemoveReplicas(each.fragment, tuple(gone)), ""

    def _one_fewer(self, each: Replicas, seen: Seen, choices: Sequence[Choice]) -> Decision:
        """Of more replicas than are wanted one goes, once all are stable."""
        waiting = [one for one in each.at if seen.states.get(one) != STABLE]
        if waiting:
            note = f"{', '.join(waiting)} is not stable yet; one more goes when it is"
            return Decision(notes=(note,))
        moved = [one for one in each.at if each.moves.get(one) in each.at][:1]
        among = moved or list(each.at)
        able = [one for one in among if self._others_have_all(each, one, seen)]
        if not able:
            note = f"{', '.join(among)} has older results than any other, and goes when nobody "
            return Decision(notes=(f"{note}needs them",))
        goes = self._dearest(each, able, seen.ground, choices)
        return Decision(RemoveReplicas(each.fragment, (goes,)))

    def _note_kept(self, kept: Mapping[str, Kept]) -> None:
        """What one has trimmed since it joined was acknowledged by all. So who has got beyond what
        it had then has nothing older, though each trims a little earlier or later than the other.
        """
        before, self._kept = self._kept, dict(kept)
        for name, now in kept.items():
            then = before.get(name)
            if then is not None and then.incarnation == now.incarnation:
                self._kept[name] = then

    def _others_have_all(self, each: Replicas, goes: str, seen: Seen) -> bool:
        own = seen.kept.get(goes)
        others = [self._kept.get(one) for one in each.at if one != goes]
        return own is not None and any(other and other.has_all_of(own) for other in others)

    def _dearest(
        self, each: Replicas, among: Sequence[str], ground: Ground, choices: Sequence[Choice]
    ) -> str:
        costs = {one.server: one.cost for one in choices if one.fragment == each.fragment}
        zones = [ground.zone(server) for server in each.at.values()]

        def rank(replica: str) -> tuple[bool, float, str]:
            server = each.at[replica]
            # Two of one zone are one too many there, whatever they cost.
            return zones.count(ground.zone(server)) > 1, costs.get(server, 0.0), replica

        return max(among, key=rank)

    def _move(
        self, fragments: Sequence[Replicas], seen: Seen, choices: Sequence[Choice], now: int
    ) -> Decision:
        """A replica goes to a server where it has long been better off."""
        movable = {
            each.fragment: each
            for each in fragments
            if not each.is_pair and not each.stays and len(each.at) > 1
        }
        worth = [one for one in choices if one.fragment in movable and seen.ground.is_worth_it(one)]
        # What flows is known before anything moves for it.
        move = self._adaptation.look(worth, now) if seen.rates else None
        if move is None:
            return Decision()
        each = movable[move.fragment]
        here = next(one for one, server in each.at.items() if server == move.here)
        like = next(one for one in each.at if one != here)
        return Decision(AddReplica(move.fragment, like, move.there, instead_of=here))
