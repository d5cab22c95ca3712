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
- BLOCK: the source waits. So it does where nobody may lapse: a replica may only while another one
  of its fragment is there, or nobody would have what its state needs. One that was never heard is
  not, nor is one that joins: it says that it is there, and has no state.

Who is another one of a fragment follows from the replicas it had when the provider began, and from
who takes part now (``core.membership``): replicas are added, move and go. Which others are of the
same new shard only those know that began after it; until then each of its replicas is taken for the
only one, and kept for.

Who is heard of is never lapsed, however slow it is, and what somebody else needs stays. A lapse is
not written down: who restarts keeps everything again, and lets go again. Nothing of this is silent:
what is the matter is a sentence for people, for as long as it is.
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


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of a stream, and in words."""

    standing: Standing
    text: str = ""


WELL = Finding(Standing.WITHIN)
EVERYBODY = Membership()


class BoundWatch:
    """Looks at the streams of one provider."""

    def __init__(self, bounds: Mapping[str, Bound]) -> None:
        self._bounds = dict(bounds)
        # Who was never heard counts from when something was first kept for it.
        self._heard_at: dict[str, int] = {}
        # Who was heard, and has what it reads from here come to: it does not join.
        self._settled: set[str] = set()
        # When the tuples came that are kept of a stream, and its tentative frames.
        self._came = {stream: Arrivals() for stream in self._bounds}
        self._tentative_came = {stream: Arrivals() for stream in self._bounds}
        self.found: dict[str, Finding] = {}

    @property
    def blocked(self) -> bool:
        """Whether a source has to wait."""
        return any(one.standing is Standing.BLOCKED for one in self.found.values())

    @property
    def beyond(self) -> str:
        """What is kept beyond a bound, and for whom nothing is kept any more, in words."""
        return "; ".join(one.text for one in self.found.values() if one.text)

    def heard(self, consumer: str, now: int, joins: bool = False) -> None:
        """A consumer is there; ``joins``: it has nothing yet of what it reads from here."""
        self._heard_at[consumer] = now
        (self._settled.discard if joins else self._settled.add)(consumer)

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
        return effects

    def _note_what_came(self, served: ServedStream, now: int) -> None:
        self._came[served.stream].look(served.first_id, served.next_id, now)
        come = served.tentative_come
        self._tentative_came[served.stream].look(come - len(served.tentative), come, now)

    def _exceeded(self, bound: Bound, served: ServedStream, size: int, now: int) -> str | None:
        """Why a stream is beyond its bound; None if it is not."""
        if bound.size_bytes is not None and size > bound.size_bytes:
            return f"{size / MEGABYTE:,.1f} MB of {bound.size_bytes / MEGABYTE:,.1f}"
        since = self._came[served.stream].since
        if bound.age_us is not None and since is not None and since < now - bound.age_us:
            return f"{(now - since) / 1e6:,.0f} s of {bound.age_us / 1e6:,.0f}"
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
        exceeded: str,
        now: int,
        membership: Membership,
        effects: list[Effect],
    ) -> Finding | None:
        """What becomes of a stream beyond its bound; None if nobody who is away is the reason."""
        needs = served.acknowledgements.needs()
        if not needs:
            return None
        slowest = min(needs, key=lambda name: needs[name])
        if needs[slowest] >= served.next_id or not self._is_away(slowest, bound, now):
            return None
        kept = f"{served.stream} keeps {exceeded} for {slowest}, which is away"
        if bound.then is Then.RETIRE and self._may_lapse(slowest, bound, membership, now):
            effects += served.lapse(slowest)
            return self._of_those_gone(served)
        why = "" if bound.then is not Then.RETIRE else "; no other replica of its fragment is there"
        return Finding(Standing.BLOCKED, f"{kept}{why}")

    def _is_away(self, name: str, bound: Bound, now: int) -> bool:
        # A replica that nothing was ever kept for here, and that was never heard, is not there.
        return now - self._heard_at.get(name, -bound.away_us - 1) > bound.away_us

    def _may_lapse(self, name: str, bound: Bound, membership: Membership, now: int) -> bool:
        group = _fragment_of(name, bound, membership)
        if group is None:
            return True
        return any(
            other != name and other in self._settled and not self._is_away(other, bound, now)
            for other in group
        )


def _fragment_of(name: str, bound: Bound, membership: Membership) -> tuple[str, ...] | None:
    """The replicas that share a state with one, as they are now; None of a client."""
    taking = ((one,) for one, _ in membership.taking)
    groups = (membership.applied_to(group) for group in (*bound.fragments, *taking))
    return next((group for group in groups if name in group), None)
