"""The consumers of a provider: which life of each name counts, durably.

Theory of operation. A consumer is a name and an *incarnation*: a number for one life of its
directory. A process that starts again with its directory is the same one. A process that has lost
it must take a place in the stream from somebody else (``core.joining``), and what its earlier life
acknowledged says nothing about it: that life was further, perhaps, than the one it takes the place
from. So it comes with a greater number, and the rule is that of every fence (``core.fence``): who
is told a higher number obeys it, writes it down before it answers under it, and refuses lower ones.

To obey is to *hold*: nothing more is trimmed until the new life itself acknowledges it. Heartbeats
of an earlier life that are still on their way, or of a machine that was thought lost and returns,
acknowledge nothing, and are told the number that counts.

A name that never lost anything has incarnation 0, and nothing is written for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.effects import Effect, KeepConsumers
from holdfast.core.events import ConsumersKept, ConsumersNotKept
from holdfast.core.machine import ProtocolError
from holdfast.core.records import ConsumersRecord


class Consumers:
    """Who reads from one provider, in which life."""

    def __init__(self, kept: ConsumersRecord | None = None) -> None:
        kept = kept or ConsumersRecord()
        self._number = kept.number
        self._kept = dict(kept.lives)
        self._newest = dict(kept.lives)
        self._writing: ConsumersRecord | None = None

    @property
    def lives(self) -> Mapping[str, int]:
        """What is obeyed: the newest incarnation of each name."""
        return self._newest

    def told(self, name: str) -> int:
        """The incarnation that ``name`` is told: the newest that is on disk."""
        return self._kept.get(name, 0)

    def counts(self, name: str, incarnation: int) -> bool:
        """Whether what this life acknowledges counts."""
        return incarnation == self._newest.get(name, 0)

    def is_newer(self, name: str, incarnation: int) -> bool:
        """Whether this life has not been heard of: a hold is due."""
        return incarnation > self._newest.get(name, 0)

    def hear(self, name: str, incarnation: int) -> list[Effect]:
        """Obey a newer life; order what is not on disk to be written."""
        if self.is_newer(name, incarnation):
            self._newest[name] = incarnation
        return self._write()

    def handle(self, event: ConsumersKept | ConsumersNotKept) -> list[Effect]:
        """What came of writing. What failed is tried again with the next heartbeat."""
        writing = self._writing
        if writing is None or event.number != writing.number:
            return []
        self._writing = None
        if isinstance(event, ConsumersNotKept):
            return []
        self._kept = dict(writing.lives)
        return self._write()

    def _write(self) -> list[Effect]:
        if self._writing is not None or self._newest == self._kept:
            return []
        self._number += 1
        self._writing = ConsumersRecord(self._number, tuple(sorted(self._newest.items())))
        return [KeepConsumers(self._writing)]

    def validate(self) -> None:
        for name, incarnation in self._kept.items():
            if self._newest.get(name, 0) < incarnation:
                raise ProtocolError(f"{name}: incarnation {incarnation} is on disk and not obeyed")
