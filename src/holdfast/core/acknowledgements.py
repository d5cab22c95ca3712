"""Acknowledgements: what every consumer of a stream is done with may be trimmed.

Theory of operation. A consumer acknowledges the first id it may still ask for. For a replica
that is the first tuple at or after the stream marker of its last durable recovery record: if
it crashes it will rebuild its state from there. For a client it is the next id it has not
yet taken. The stream may be trimmed below the smallest acknowledgement of all consumers the
deployment names; one that was never heard of has acknowledged nothing. An acknowledgement
can only grow: a smaller one is an old message, and is ignored. So are those of readers that
the deployment does not name: they may read what there is, but nothing is kept for them.

A consumer may leave for good (``core.membership``); what was kept for it alone may go. If nobody is
left whom the stream was kept for, it is *abandoned*: nothing is kept any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.machine import ProtocolError

# In place of an id: nothing that there is now is needed, however much that may be.
NOTHING_NEEDED = 1 << 62


@dataclass(frozen=True, slots=True)
class Acknowledged:
    consumer: str
    first_needed: int


@dataclass(frozen=True, slots=True)
class TrimBelow:
    first_needed: int


class Acknowledgements:
    """Who still needs what of one stream."""

    def __init__(self, stream: str, consumers: tuple[str, ...], trimmed_below: int = 0) -> None:
        self.stream = stream
        self.trimmed_below = trimmed_below
        self._first_needed = dict.fromkeys(consumers, trimmed_below)
        # Those among them who were away for too long, until they are heard of again.
        self.lapsed: set[str] = set()
        self._was_kept = bool(consumers)

    @property
    def abandoned(self) -> bool:
        """Whether there was somebody to keep the stream for, and is nobody now."""
        return self._was_kept and len(self.lapsed) == len(self._first_needed)

    def handle(self, event: Acknowledged, now: int) -> list[TrimBelow]:
        before = self._first_needed.get(event.consumer)
        if before is not None and event.consumer in self.lapsed:
            self.hold(event.consumer)
            before = self.trimmed_below
        if before is None or event.first_needed <= before:
            return []
        self._first_needed[event.consumer] = event.first_needed
        return self._trim_to_least()

    def _trim_to_least(self) -> list[TrimBelow]:
        needs = self.needs()
        return self._trim(min(needs.values())) if needs else []

    def _trim(self, below: int) -> list[TrimBelow]:
        if below <= self.trimmed_below:
            return []
        self.trimmed_below = below
        return [TrimBelow(below)]

    def take_in(self, consumer: str) -> None:
        """Keep what comes for one more consumer, from what there is on."""
        self._first_needed.setdefault(consumer, self.trimmed_below)
        self._was_kept = True

    def leave(self, consumer: str) -> list[TrimBelow]:
        """A consumer is gone for good: nothing is kept for it."""
        if self._first_needed.pop(consumer, None) is None:
            return []
        self.lapsed.discard(consumer)
        return self._trim_to_least()

    def lapse(self, consumer: str) -> list[TrimBelow]:
        """A consumer is away for too long: keep nothing for it until it is heard of again."""
        if consumer not in self._first_needed:
            return []
        self.lapsed.add(consumer)
        return self._trim_to_least()

    def forget_below(self, first_id: int) -> list[TrimBelow]:
        """Of a stream that is abandoned, nothing below this id is kept."""
        return self._trim(first_id) if self.abandoned else []

    @property
    def consumers(self) -> tuple[str, ...]:
        """All for whom the stream is kept, or was until they were away for too long."""
        return tuple(self._first_needed)

    def knows(self, consumer: str) -> bool:
        """Whether anything is kept for this reader."""
        return consumer in self._first_needed

    def hold(self, consumer: str) -> None:
        """A new life of this consumer has acknowledged nothing: keep all there is for it."""
        if consumer in self._first_needed:
            self.lapsed.discard(consumer)
            self._first_needed[consumer] = self.trimmed_below

    def needs(self) -> dict[str, int]:
        """What each consumer may still ask for that the stream is kept for."""
        return {
            name: needed for name, needed in self._first_needed.items() if name not in self.lapsed
        }

    def first_needed(self, consumer: str) -> int:
        """What a consumer may still ask for."""
        return max(self._first_needed.get(consumer, 0), self.trimmed_below)

    def skip_to(self, first_needed: int) -> None:
        """The other copy of the stream's replica has trimmed this far."""
        self.trimmed_below = max(self.trimmed_below, first_needed)
        for consumer, needed in self._first_needed.items():
            self._first_needed[consumer] = max(needed, first_needed)

    def validate(self) -> None:
        if any(needed < self.trimmed_below for needed in self.needs().values()):
            raise ProtocolError(
                f"{self.stream}: trimmed {self.trimmed_below}, {self._first_needed}"
            )
