"""The producers of an entry point: who may send under a name, and which batch is next.

Theory of operation. A producer opens its name and is told its epoch (``core.fence``), the number
of the last batch taken from that name, and how many tuples came with it. It numbers its batches
from there on. A batch counts if it is the next one of the newest epoch; one that was taken before
is a repeat, which is acknowledged again and changes nothing; one further on would leave a hole,
and is refused: what lies between is lost on its way or counted wrongly, and must not be so in
silence. Opening fences the life before: whatever it still has on its way is refused.

A name is kept for ever, for its producer may come back after years. So there are only so many, and
none is long: whoever makes up a new name for each of its lives is told so.

What was taken is not yet durable. After a restart this is made from what is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from holdfast.core.fence import check
from holdfast.core.machine import PeerError
from holdfast.core.source_time import FAR

# Each costs some hundred bytes in memory and in the ledger.
MOST_NAMES = 10_000
LONGEST_NAME = 255


class TooManyNames(PeerError):
    """No further name is taken."""


class SequenceGap(PeerError):
    """A batch is missing before the one that came."""


class BatchVerdict(Enum):
    NEXT = "next"
    REPEAT = "repeat"


@dataclass(frozen=True, slots=True)
class ProducerPlace:
    """How far a producer is: its epoch, its last batch, and its tuples with that one.

    newest    the newest of its tuples' own times, and
    promised  the time before which it will send nothing, as of that batch.
    """

    epoch: int = 0
    sequence: int = 0
    tuples: int = 0
    newest: int = -FAR
    promised: int = -FAR


class Producers:
    """The places of all producers of one stream, with what is on its way into the log."""

    def __init__(self, durable: Mapping[str, ProducerPlace]) -> None:
        self._places = dict(durable)

    def place(self, name: str) -> ProducerPlace:
        return self._places.get(name, ProducerPlace())

    def open(self, name: str) -> ProducerPlace:
        """A new life of ``name``, which goes on where the one before stands."""
        if not 0 < len(name) <= LONGEST_NAME:
            raise TooManyNames(
                f"a producer's name has 1 to {LONGEST_NAME} characters; this one has {len(name)}"
            )
        if name not in self._places and len(self._places) >= MOST_NAMES:
            raise TooManyNames(
                f"producer {name[:40]!r} is refused: this source has {len(self._places)} names of "
                f"producers, and each is kept for ever. Go on under a name that was used before, "
                f"as every life of a producer should"
            )
        before = self.place(name)
        self._places[name] = replace(before, epoch=before.epoch + 1)
        return self._places[name]

    def judge(self, name: str, epoch: int, sequence: int) -> BatchVerdict:
        """Whether a batch is the next; raises if its sender may not send it."""
        place = self.place(name)
        check(f"producer {name!r}", epoch, place.epoch)
        if sequence > place.sequence + 1:
            raise SequenceGap(
                f"batch {sequence} of producer {name!r} is refused: batch {place.sequence + 1} "
                f"is next, and what lies between is missing. Open the name again and send what "
                f"comes after tuple {place.tuples}"
            )
        return BatchVerdict.NEXT if sequence == place.sequence + 1 else BatchVerdict.REPEAT

    def took(self, name: str, sequence: int, tuples: int) -> None:
        """The next batch is on its way into the log."""
        self._places[name] = replace(self.place(name), sequence=sequence, tuples=tuples)
