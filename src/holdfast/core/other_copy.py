"""What one copy knows of another, and what it has sent there.

Every other copy has a failure detector and a checkpointer of its own: one that is away or slow
holds up nobody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from holdfast.core import sweeping
from holdfast.core.detector import FailureDetector
from holdfast.core.machine import Machine
from holdfast.core.messages import CopyReport
from holdfast.core.records import Checkpoint, LoggedStream, RecoveryRecord
from holdfast.core.serving import ServedStream
from holdfast.core.settings import StandbySettings
from holdfast.core.sweeping import Numbers, SweepingCheckpointer


class OtherCopy:
    """One of the others."""

    def __init__(
        self, address: str, owner: str, settings: StandbySettings, numbers: Numbers
    ) -> None:
        self.address = address
        self.checkpointer = SweepingCheckpointer(
            f"{owner} to {address}",
            settings.checkpointing,
            settings.checkpoint_interval_us,
            numbers,
        )
        self.detector = FailureDetector(
            address,
            settings.heartbeat_interval_us,
            settings.misses_until_awake,
            owner,
            patient=True,
        )
        # What was sent last, whose pieces the runtime may still be reading.
        self.sent: RecoveryRecord | None = None
        # Where each output ended, by the numbers of checkpoints.
        self._next_ids: dict[int, dict[str, int]] = {}

    def machines(self) -> Iterator[Machine[Any, Any]]:
        yield self.checkpointer
        yield self.detector

    def reported(self, report: CopyReport, now: int) -> None:
        """What it says that it holds counts, whatever it answered before."""
        self.checkpointer.handle(sweeping.Taken(report.holds), now)
        if report.boundary < 0:
            self.checkpointer.handle(sweeping.HoldsNothing(), now)

    def packed(self, checkpoint: Checkpoint, served: Mapping[str, ServedStream]) -> Checkpoint:
        """The checkpoint with what this copy lacks of the output queues; it is sent now."""
        had = self._next_ids.get(checkpoint.base, {}) if checkpoint.base is not None else {}
        queues = self._queues(had, served)
        if len(self._next_ids) > 8:
            self._next_ids = {n: self._next_ids[n] for n in sorted(self._next_ids)[-4:]} | (
                {} if checkpoint.base is None else {checkpoint.base: had}
            )
        self._next_ids[checkpoint.number] = {name: one.next_id for name, one in served.items()}
        self.sent = checkpoint.record
        return replace(checkpoint, queues=tuple(queues))

    def _queues(
        self, had: Mapping[str, int], served: Mapping[str, ServedStream]
    ) -> Iterable[LoggedStream]:
        return [one.queue(had.get(name, 0)) for name, one in served.items()]
