"""Ending: where a changed network would be let go on, no reader has more than the logs.

What is asked of the notes of those who ended is what the product asks (``core.ending.beyond``). It
would go on where the replica that is furthest has its logs' end, if all of them have noted theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.core.ending import beyond
from holdfast.core.records import StreamEnd
from holdfast.core.settings import Delivery
from holdfast.simulation.checkers import Violation

if TYPE_CHECKING:
    from holdfast.simulation.replica_process import ReplicaProcess
    from holdfast.simulation.world import World


class Endings:
    """The replicas of a world that end in order."""

    def __init__(self, world: World) -> None:
        self._world = world
        # Where the streams were when one began to end, if its disk was well.
        self._published: dict[str, list[StreamEnd]] = {}

    def ending(self, process: ReplicaProcess) -> None:
        served = process.driver.served.values()
        self._published[process.address] = [
            StreamEnd(one.stream, one.next_id, one.boundary)
            for one in served
            if not process.disk.full
        ]

    def ended(self, process: ReplicaProcess) -> None:
        if process.settings.delivery is not Delivery.EXACTLY_ONCE:
            return
        published = self._published.pop(process.address, [])
        if published and not process.disk.full:
            self._check_written(process, published)
        self.down(process)

    def down(self, process: ReplicaProcess) -> None:
        """A replica is down; perhaps it was the last of its fragment that was up."""
        if process.settings.delivery is not Delivery.EXACTLY_ONCE:
            return
        streams = {one.stream for one in process.settings.outputs}
        group = [
            one
            for address, one in self._world.replicas.items()
            if streams & {output.stream for output in one.settings.outputs}
            and address not in self._world.authority.gone
        ]
        ended = [not one.up and one.persists and one.disk.ended is not None for one in group]
        if group and all(ended):
            self._check_readers(group)

    def _check_written(self, process: ReplicaProcess, published: list[StreamEnd]) -> None:
        lacks = beyond(published, _logged(process))
        if lacks is not None:
            raise Violation("ending", f"{process.address} has published {lacks}, not in its log")
        if process.driver.earlier_lives.passed and process.disk.ended is None:
            raise Violation("ending", f"{process.address} has ended in order, and noted nothing")

    def _check_readers(self, group: list[ReplicaProcess]) -> None:
        ends = [_logged(one) for one in group]
        furthest = max(ends, key=lambda logged: max(one.boundary for one in logged))
        if any(beyond(one.disk.ended or (), furthest) is not None for one in group):
            return  # a changed network is refused
        for logged in furthest:
            for reader, next_id in self._readers(logged.stream):
                if next_id > logged.next_id:
                    raise Violation(
                        "ending",
                        f"{reader} has {logged.stream} up to {next_id}, and no log of those who "
                        f"ended in order beyond {logged.next_id}",
                    )

    def _readers(self, stream: str) -> Iterator[tuple[str, int]]:
        """Who reads a stream, and the id that it needs next."""
        for address, process in self._world.processes.items():
            consumer, record = process.consumer, process.disk.record
            if consumer is not None and stream in consumer.upstreams:
                yield address, consumer.upstreams[stream].copy.next_id
            if record is not None:
                yield address, dict(record.inputs).get(stream, 0)


def _logged(process: ReplicaProcess) -> list[StreamEnd]:
    return [process.disk.log_end(one.stream) for one in process.settings.outputs]
