"""A client that needs no order: each result once, the moment it is there.

Theory of operation. It reads as every client does (client.py), and asks for early results besides.
Of those each passes at once that has not passed before (duplicates.py); of the stream in order what
did not come early. All of it is stable. Tentative tuples are not taken: whatever they would tell
came early, or will, and for good. So nothing is ever taken back.

A client that goes on where an earlier life stopped knows its place by an id, and early results have
none: it takes them once the stream in order has reached that place. What its earlier life had early
and not yet in order comes again.

Where it stands in the stream, for what it acknowledges, is the place of the stream in order.
"""

from __future__ import annotations

from holdfast.core.client import Client, ClientSettings
from holdfast.core.duplicates import DuplicateFilter
from holdfast.core.effects import DeliverTuples, Effect
from holdfast.core.frame import Kind
from holdfast.core.messages import StreamFrame
from holdfast.core.provenance import Choice


class UnorderedClient(Client):
    """The driver of a client without an order."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self.filter = DuplicateFilter()
        # Whether it is known which results are older than what an earlier life had.
        self._placed = settings.next_id == 0

    def _take(self, frame: StreamFrame, now: int, effects: list[Effect]) -> None:
        header = frame.header
        if header.kind is Kind.EARLY:
            if self._placed:
                self._take_early(frame, effects)
        elif header.kind is Kind.STABLE:
            choice = self.filter.left()
            held = self.copy.take(frame, now)
            if held is not None:
                place = (held.skip, held.stime_from)
                effects.append(
                    DeliverTuples(self.stream, header, held.block, *place, choice=choice)
                )
                self._placed = True
        elif header.kind is Kind.BOUNDARY:
            super()._take(frame, now, effects)
            self._placed |= header.first_id >= self.copy.next_id
        self.filter.forget_before(self.copy.cut)

    def _take_early(self, frame: StreamFrame, effects: list[Effect]) -> None:
        if frame.header.stime_max < self.copy.cut:
            return
        # A claim of times holds what was claimed alone, too.
        alone = self.filter.alone
        fresh = self.filter.take(frame.claims)
        if fresh:
            whole = fresh == frame.claims and not alone
            choice = None if whole else Choice(fresh, inside=True, but=alone)
            place = (0, self.copy.cut)
            effects.append(
                DeliverTuples(self.stream, frame.header, frame.block, *place, choice=choice)
            )


def make_client(settings: ClientSettings) -> Client:
    """A client of a stream, with or without its order."""
    return UnorderedClient(settings) if settings.input.early else Client(settings)
