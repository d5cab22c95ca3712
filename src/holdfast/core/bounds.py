"""Bounds on what is kept for somebody who is away.

Theory of operation. A stream is kept until everyone it is kept for has acknowledged it; who stays
away makes it grow without end. A *bound* says how many bytes, or for how long a tuple, and what
happens when it is exceeded because of one who is away. How long counts from when a tuple came, not
from the time it carries, which may be last year's; what a provider finds when it starts counts from
then (arrivals.py). What happens:

- RETIRE: nothing more is kept for that one, for now: it has *lapsed*. What was kept for it alone
  goes. It counts again from its first word on. A replica that needs what is gone then joins anew
  from a partner's state (``core.joining``); a client is told what it has missed.
- DROP: of the tentative tuples the oldest go, as many as are beyond the bound, whoever is away or
  not. Stable ones take their place anyway; who subscribes before that lacks them. They are counted.
  Of stable tuples none goes: beyond the bound it is as with BLOCK.
- BLOCK: the sources wait, until that one is back. So they do where nobody may lapse: a replica may
  only while another one of its fragment is there, or nobody would have what its state needs. One
  that was never heard is not, nor is one that joins: it says that it is there, and has no state.

Who is another one of a fragment follows from the replicas it had when the provider began, and from
who takes part now (``core.membership``): replicas are added, move and go. Which others are of the
same new shard only those know that began after it; until then each of its replicas is taken for the
only one, and kept for.

Who is heard of is never lapsed, however slow it is, and what somebody else needs stays. A lapse is
not written down: who restarts keeps everything again, and lets go again.

One that is there may stand still all the same: its disk is full, it joins and nobody has a state
for it, it waits for another input, what it hands results to takes none. While it gets on it is kept
for, however far behind it is. If it has acknowledged nothing for as long as somebody may be away,
though it could (what is kept was due), and more bytes are kept for it than the bound says, the
sources wait for it, whatever else happens to those who are away. A bound that is exceeded in time
only is told: waiting would make no tuple younger, and a long window may need old ones.

The sources, not the replicas: a replica that took no more, or computed no more, would have its
input wait on its own disk instead of its output, and hold back results that others wait for. So it
goes on with all that was taken, within X, and says to those it reads from that it is *full*, with
its heartbeats, and they to theirs. An entry point that hears so takes no more from its source, like
one that is beyond a bound of its own; what was not taken is nobody's promise yet. Who has said so
and is away is not waited for.

Nothing of this is silent: what is the matter is a sentence for people, for as long as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from holdfast.core.arrivals import Arrivals
from holdfast.core.effects import Effect
from holdfast.core.records import Membership
from holdfast.core.serving import ServedStream
from holdfast.core.settings import Bound, Then

MEGABYTE = 1_000_000


class Standing(Enum):
    """How a stream stands to its bound."""

    WITHIN = "within"
    LAPSED = "lapsed"
    DROPPED = "dropped"
    BLOCKED = "blocked"
    BEYOND = "beyond"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of a stream, and in words."""

    standing: Standing
    text: str = ""


@dataclass(frozen=True, slots=True)
class Exceeded:
    """How a stream is beyond its bound.

    needs_bytes  in bytes, so many of which somebody may still ask for: a log gives room back in
                 large pieces. None if it is in time.
    """

    text: str
    needs_bytes: int | None = None


WELL = Finding(Standing.WITHIN)
EVERYBODY = Membership()
EVERYWHERE: Mapping[str, Bound] = {}
# More of what is said to others goes on no wire.
LONGEST_TEXT = 500


class BoundWatch:
    """Looks at the streams of one provider."""

    def __init__(self, bounds: Mapping[str, Bound] = EVERYWHERE) -> None:
        self._bounds = dict(bounds)
        self._away_us = max((one.away_us for one in bounds.values()), default=Bound().away_us)
        # Who was never heard counts from when something was first kept for it.
        self._heard_at: dict[str, int] = {}
        # Who was heard, and has what it reads from here come to: it does not join.
        self._settled: set[str] = set()
        # Who has said that it is full, and why.
        self._full: dict[str, str] = {}
        # Of streams with due tuples: the first id that is needed, and since when it is that.
        self._stands: dict[str, tuple[int, int]] = {}
        # When the tuples came that are kept of a stream, and its tentative frames.
        self._came = {stream: Arrivals() for stream in self._bounds}
        self._tentative_came = {stream: Arrivals() for stream in self._bounds}
        self.found: dict[str, Finding] = {}
        # (stream, consumer) of those for whom nothing is kept for now.
        self.lapsed: frozenset[tuple[str, str]] = frozenset()

    @property
    def beyond(self) -> str:
        """What is kept beyond a bound, and for whom nothing is kept any more, in words."""
        found = [one for one in self.found.values() if one.standing is not Standing.BLOCKED]
        return "; ".join(one.text for one in found if one.text)

    @property
    def full(self) -> str:
        """For whom sources wait, and why, in words."""
        found = [one for one in self.found.values() if one.standing is Standing.BLOCKED]
        said = [f"{name} is full: {text}" for name, text in self._full.items()]
        texts = "; ".join([*(one.text for one in found), *said])
        return f"the sources wait: {texts}" if texts else ""

    def waits(self, now: int) -> str:
        """What those are told who are read from: why sources have to wait; nothing if not."""
        self.forget_who_is_away(now)
        here = [one.text for one in self.found.values() if one.standing is Standing.BLOCKED]
        return "; ".join(dict.fromkeys([*here, *self._full.values()]))[:LONGEST_TEXT]

    def forget_who_is_away(self, now: int) -> None:
        """Nobody waits for one that was full when it was heard last."""
        for name in list(self._full):
            if self._is_away(name, self._away_us, now):
                del self._full[name]

    def heard(self, consumer: str, now: int, joins: bool = False) -> None:
        """A consumer is there; ``joins``: it has nothing yet of what it reads from here."""
        self._heard_at[consumer] = now
        (self._settled.discard if joins else self._settled.add)(consumer)

    def note_full(self, consumer: str, why: str) -> None:
        """What one who was just heard says of its room."""
        if why:
            self._full[consumer] = why
        else:
            self._full.pop(consumer, None)

    def look(
        self,
        streams: Mapping[str, ServedStream],
        sizes: Mapping[str, int],
        now: int,
        tentative: Mapping[str, int] | None = None,
        membership: Membership = EVERYBODY,
    ) -> list[Effect]:
        """See what is kept, in bytes; let go of what is kept for who is away for too long.

        ``tentative``: how many bytes of tentative tuples are kept beside.
        """
        effects: list[Effect] = []
        for stream, bound in self._bounds.items():
            self._note_what_came(streams[stream], now)
            self._note_what_is_needed(streams[stream], now)
            for name in streams[stream].acknowledgements.consumers:
                self._heard_at.setdefault(name, now)
            exceeded = self._exceeded(bound, streams[stream], sizes.get(stream, 0), now)
            if bound.then is Then.DROP:
                self._drop(bound, streams[stream], (tentative or {}).get(stream, 0), now)
            finding = self._of_those_gone(streams[stream])
            if exceeded is not None:
                judged = self._judge(streams[stream], bound, exceeded, now, membership, effects)
                finding = judged or finding
            self.found[stream] = finding
        self.lapsed = frozenset(
            (stream, name)
            for stream in self._bounds
            for name in streams[stream].acknowledgements.lapsed
        )
        return effects

    def _note_what_came(self, served: ServedStream, now: int) -> None:
        self._came[served.stream].look(served.first_id, served.next_id, now)
        come = served.tentative_come
        self._tentative_came[served.stream].look(come - len(served.tentative), come, now)

    def _note_what_is_needed(self, served: ServedStream, now: int) -> None:
        needs = served.acknowledgements.needs().values()
        needed = min(needs, default=served.next_id)
        # Nobody can have processed what no boundary has passed.
        due = bool(served.stable) and served.stable[0].header.stime_max < served.boundary
        if needed >= served.next_id or not due:
            self._stands.pop(served.stream, None)
        elif self._stands.get(served.stream, (-1, 0))[0] != needed:
            self._stands[served.stream] = (needed, now)

    def _exceeded(self, bound: Bound, served: ServedStream, size: int, now: int) -> Exceeded | None:
        """How a stream is beyond its bound; None if it is not."""
        if bound.size_bytes is not None and size > bound.size_bytes:
            text = f"{size / MEGABYTE:,.1f} MB of {bound.size_bytes / MEGABYTE:,.1f}"
            return Exceeded(text, served.kept_bytes or size)
        since = self._came[served.stream].since
        if bound.age_us is not None and since is not None and since < now - bound.age_us:
            text = f"{(now - since) / 1e6:,.0f} s of {bound.age_us / 1e6:,.0f}"
            return Exceeded(text)
        return None

    def _drop(self, bound: Bound, served: ServedStream, size: int, now: int) -> None:
        """Let the oldest tentative tuples go that are beyond a bound."""
        excess = 0
        if bound.size_bytes is not None and size > bound.size_bytes:
            # Tuples of a stream are about as large as each other.
            kept = sum(frame.header.count for frame in served.tentative)
            excess = -(-kept * (size - bound.size_bytes) // size)
        old = 0
        if bound.age_us is not None:
            gone = served.tentative_come - len(served.tentative)
            old = self._tentative_came[served.stream].before(now - bound.age_us) - gone
        served.drop_tentative(excess, old)

    @staticmethod
    def _of_those_gone(served: ServedStream) -> Finding:
        """Whom a stream is not kept for any more, and what of it was dropped."""
        if served.dropped_now:
            text = (
                f"{served.stream}: the oldest {served.dropped_now:,} tentative tuples were "
                f"dropped, who comes later lacks them until it is corrected"
            )
            return Finding(Standing.DROPPED, text)
        lapsed = ", ".join(sorted(served.acknowledgements.lapsed))
        if not lapsed:
            return WELL
        text = f"{served.stream} is not kept for {lapsed} any more, away for too long"
        return Finding(Standing.LAPSED, text)

    def _judge(
        self,
        served: ServedStream,
        bound: Bound,
        exceeded: Exceeded,
        now: int,
        membership: Membership,
        effects: list[Effect],
    ) -> Finding | None:
        """What becomes of a stream beyond its bound; None if nobody who is away is the reason."""
        needs = served.acknowledgements.needs()
        least = min(needs.values(), default=served.next_id)
        if least >= served.next_id:
            return None
        slowest = [name for name in needs if needs[name] == least]
        there = [name for name in slowest if not self._is_away(name, bound.away_us, now)]
        if there and (bound.then is Then.RETIRE or len(there) == len(slowest)):
            # To let go of others would free nothing.
            return self._if_it_stands(served, bound, exceeded, there[0], now)
        slowest = [name for name in slowest if name not in there]
        return self._of_one_away(served, bound, exceeded, slowest[0], now, membership, effects)

    def _if_it_stands(
        self, served: ServedStream, bound: Bound, exceeded: Exceeded, name: str, now: int
    ) -> Finding | None:
        """What becomes of a stream beyond its bound for one that is there."""
        _, since = self._stands.get(served.stream, (0, now))
        needs_bytes = exceeded.needs_bytes
        needed = needs_bytes is None or needs_bytes > (bound.size_bytes or 0)
        if now - since <= bound.away_us or not needed:
            return None
        text = (
            f"{served.stream} keeps {exceeded.text} for {name}, which is there and has "
            f"acknowledged nothing for {(now - since) / 1e6:,.0f} s"
        )
        return Finding(Standing.BEYOND if needs_bytes is None else Standing.BLOCKED, text)

    def _of_one_away(
        self,
        served: ServedStream,
        bound: Bound,
        exceeded: Exceeded,
        slowest: str,
        now: int,
        membership: Membership,
        effects: list[Effect],
    ) -> Finding:
        """What becomes of a stream beyond its bound for one that is away."""
        kept = f"{served.stream} keeps {exceeded.text} for {slowest}, which is away"
        if bound.then is Then.RETIRE and self._may_lapse(slowest, bound, membership, now):
            effects += served.lapse(slowest)
            return self._of_those_gone(served)
        why = "" if bound.then is not Then.RETIRE else "; no other replica of its fragment is there"
        return Finding(Standing.BLOCKED, f"{kept}{why}")

    def _is_away(self, name: str, away_us: int, now: int) -> bool:
        # A replica that nothing was ever kept for here, and that was never heard, is not there.
        return now - self._heard_at.get(name, -away_us - 1) > away_us

    def _may_lapse(self, name: str, bound: Bound, membership: Membership, now: int) -> bool:
        group = _fragment_of(name, bound, membership)
        if group is None:
            return True
        return any(
            other != name
            and other in self._settled
            and not self._is_away(other, bound.away_us, now)
            for other in group
        )


def _fragment_of(name: str, bound: Bound, membership: Membership) -> tuple[str, ...] | None:
    """The replicas that share a state with one, as they are now; None of a client."""
    taking = ((one,) for one, _ in membership.taking)
    groups = (membership.applied_to(group) for group in (*bound.fragments, *taking))
    return next((group for group in groups if name in group), None)
