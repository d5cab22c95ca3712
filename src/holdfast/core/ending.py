"""The end of a replica's life: whether all that its readers have is in its logs.

Theory of operation. A replica publishes results before its disk has them (``core.replica``): if
they are lost with it, it computes the same ones again, under the same ids, and no reader notices.
That holds as long as it computes the same. A network that was changed while nothing ran goes on
where the logs end, and a reader that has more would take the new tuples for those that it has: some
would be lost, and some count twice. So there it must be known that no reader has more.

A process that ends in order sends nothing more, writes what its streams have and its logs lack,
with the record that has waited for readers (``core.delivery``), and notes where its streams
ended (``KeepEnd``), which the log of another replica may be short of. Of a process that was killed
there is no such note: it goes when a life begins, before anything is published.

A reader may have more than this life has published: from another replica, which it says when it
asks for what comes next; or from an earlier life that was killed. Nothing is noted until this one
has passed whatever that may have been: it was STABLE, and has come further by X since, which is
more than producers of one stream that are STABLE are apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.core.consistency import NodeState
from holdfast.core.delivery import State
from holdfast.core.effects import Append, Effect, KeepEnd
from holdfast.core.messages import CopyReport
from holdfast.core.records import Found, StreamEnd
from holdfast.core.replica import Replica
from holdfast.core.serving import ServedStream
from holdfast.core.settings import Delivery, ReplicaSettings

# Nobody is left to be told that it is done.
LAST_APPEND = 0


class EarlierLives:
    """Whether this life has passed all that earlier ones may have published."""

    def __init__(self, found: Found, margin_us: int) -> None:
        nothing = found.record is None and not any(one.frames for one in found.queues)
        self.passed = found.ended or nothing
        self._margin_us = margin_us
        self._since: int | None = None

    def begin_again(self) -> None:
        """What was here is of no use any more, whatever was published of it."""
        self.passed, self._since = False, None

    def look(self, replica: Replica) -> None:
        """A replica runs here."""
        if not self.passed and replica.state is NodeState.STABLE:
            position = replica.versions.stable_position
            self._reached(position, position)

    def heard(self, report: CopyReport, held: int) -> None:
        """Another copy runs; the state of a boundary is held here."""
        if not self.passed and report.ready and report.live_boundary == report.boundary:
            self._reached(report.boundary, held)

    def _reached(self, others: int, boundary: int) -> None:
        if self._since is None:
            self._since = others
        self.passed = boundary >= self._since + self._margin_us


def last_orders(
    settings: ReplicaSettings,
    served: Mapping[str, ServedStream],
    earlier_lives: EarlierLives,
    unwritten: State | None = None,
) -> list[Effect]:
    """What is left to do for a replica that ends in order.

    ``unwritten``: its newest record, if that has waited for readers; the next life goes on from it.
    """
    if settings.delivery is not Delivery.EXACTLY_ONCE:
        return [KeepEnd(())]  # no log has its results, and ids are those of what computes them
    queues = [one.queue() for one in served.values()]
    frames = tuple((queue.stream, queue.frames) for queue in queues)
    begins = tuple((queue.stream, queue.first_id) for queue in queues)
    record, state = unwritten or (None, None)
    orders: list[Effect] = [Append(LAST_APPEND, frames, record, state, begins)]
    if earlier_lives.passed:
        orders.append(KeepEnd(tuple(map(_end_of, served.values()))))
    return orders


def _end_of(served: ServedStream) -> StreamEnd:
    return StreamEnd(served.stream, max(served.next_id, served.asked_id), served.boundary)


def was_whole(noted: Iterable[StreamEnd] | None, logged: Iterable[StreamEnd]) -> bool:
    """Whether a life has ended in order, and its logs have all that its readers had."""
    return noted is not None and beyond(noted, logged) is None


def beyond(noted: Iterable[StreamEnd], logged: Iterable[StreamEnd]) -> StreamEnd | None:
    """Where readers were, by the notes of all replicas, if that is beyond the logs of one."""
    logs = {one.stream: one for one in logged}
    for one in noted:
        log = logs.get(one.stream)
        if log is None or log.next_id < one.next_id or log.boundary < one.boundary:
            return one
    return None
