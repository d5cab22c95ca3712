"""How often a fragment's results count: what a replica keeps for that, and when it acknowledges.

    delivery       kept on disk                 acknowledged is               a restart goes on
    exactly-once   record, state, results       what a record on disk has     from the record
    at-least-once  record and state             what readers have confirmed   from the record
    at-most-once   nothing                      what came                     from now on

Theory of operation. *Exactly once*, results are in a log, so that whoever reads them finds them
there, under the same ids, whatever is lost meanwhile.

*At least once* there is no log of results. The log in front stands for it: a record is written only
when everybody who reads has confirmed all results up to it, and only a record that is on disk lets
the producers trim. So a restart computes everything that is unconfirmed, and sends it again. It has
the ids it had, because they are computed; whoever keeps its place by them notices nothing.

*At most once* nothing is kept and nothing sent again. A replica that begins takes of every input
what comes from then on. What was lost with the one before it would shift the ids, so ids belong to
one life of a replica, and readers place its results by time: on a new feed they take only what is
newer than all they have (``core.stream_copy``). A life's ids begin with its time, for those who
write ids down; nothing else depends on it. So even one that was cut off from a producer which
was ahead, and begins again with one that is behind, doubles nothing. Whatever reads such a stream
is of the same kind: there is nothing it could compute again from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from holdfast.core.appender import Appender
from holdfast.core.beginning import EMPTY_RECORD, serve
from holdfast.core.consumer import Consumer
from holdfast.core.effects import Effect
from holdfast.core.messages import StreamFrame
from holdfast.core.records import Found, LoggedStream, RecoveryRecord
from holdfast.core.serving import ServedStream
from holdfast.core.settings import Delivery, ReplicaSettings
from holdfast.core.stream_copy import ANYWHERE, StreamCopy

State = tuple[RecoveryRecord, object]


class Keeper:
    """What a replica keeps of its results and its state: exactly once, all of it."""

    def __init__(
        self, appender: Appender, served: Mapping[str, ServedStream], consumer: Consumer
    ) -> None:
        self._appender = appender
        self._served = served
        self._consumer = consumer

    def begin(self, queue: LoggedStream) -> None:
        """This is in the output queue already, and may not be on disk."""
        self._appender.add_queue(queue)

    def emitted(self, stream: str, frames: tuple[StreamFrame, ...]) -> None:
        """These frames have gone out."""
        self._appender.add(stream, frames)

    def describe(self, record: RecoveryRecord, state: object) -> None:
        """This is where the stable state stands after all frames that have gone out."""
        self._appender.describe(record, state)

    def flush(self, now: int) -> list[Effect]:
        """Write what is to be written."""
        return self._appender.flush(now)


class ConfirmedKeeper(Keeper):
    """At least once: no results; a record when readers have what it will not compute again."""

    def __init__(
        self, appender: Appender, served: Mapping[str, ServedStream], consumer: Consumer
    ) -> None:
        super().__init__(appender, served, consumer)
        # The record that waits for readers, and the newest, which is the next to wait.
        self._waits: State | None = None
        self._newest: State | None = None

    def begin(self, queue: LoggedStream) -> None:
        pass

    def emitted(self, stream: str, frames: tuple[StreamFrame, ...]) -> None:
        pass

    def describe(self, record: RecoveryRecord, state: object) -> None:
        self._newest = (record, state)
        self._waits = self._waits or self._newest

    def flush(self, now: int) -> list[Effect]:
        while self._waits is not None and self._is_confirmed(self._waits[0]):
            self._appender.describe(*self._waits)
            newer = self._newest is not self._waits
            self._waits = self._newest if newer else None
        return super().flush(now)

    def _is_confirmed(self, record: RecoveryRecord) -> bool:
        return all(
            self._served[stream].first_id >= first_id
            for stream, first_id in record.outputs
            if self._served[stream].acknowledgements.needs()
        )


class NoKeeper(Keeper):
    """At most once: nothing is kept, and what came need not be kept by others either."""

    def begin(self, queue: LoggedStream) -> None:
        pass

    def emitted(self, stream: str, frames: tuple[StreamFrame, ...]) -> None:
        pass

    def describe(self, record: RecoveryRecord, state: object) -> None:
        pass

    def flush(self, now: int) -> list[Effect]:
        for stream, one in self._consumer.upstreams.items():
            self._consumer.acks[stream] = max(0, one.copy.next_id)
        return []


_KEEPERS = {
    Delivery.EXACTLY_ONCE: Keeper,
    Delivery.AT_LEAST_ONCE: ConfirmedKeeper,
    Delivery.AT_MOST_ONCE: NoKeeper,
}


def keeper_of(
    settings: ReplicaSettings,
    appender: Appender,
    served: Mapping[str, ServedStream],
    consumer: Consumer,
) -> Keeper:
    """What keeps for a replica of these settings; ``served`` is filled later."""
    return _KEEPERS[settings.delivery](appender, served, consumer)


def begin_copies(settings: ReplicaSettings, record: RecoveryRecord) -> dict[str, StreamCopy]:
    """The inputs of a replica that begins with a record."""
    first_ids = dict(record.inputs)
    begins = ANYWHERE if settings.delivery is Delivery.AT_MOST_ONCE else 0
    return {
        one.stream: StreamCopy(one.stream, first_ids.get(one.stream, begins), one.lossy)
        for one in settings.inputs
    }


def begin_anew(
    settings: ReplicaSettings, served: dict[str, ServedStream], now: int
) -> RecoveryRecord:
    """Where a replica begins that has nothing; its streams begin there, too."""
    if settings.delivery is not Delivery.AT_MOST_ONCE:
        return EMPTY_RECORD
    for one in settings.outputs:
        served[one.stream] = serve(settings, one, LoggedStream(one.stream, now, ()))
    return replace(EMPTY_RECORD, outputs=tuple((one.stream, now) for one in settings.outputs))


def of_use(settings: ReplicaSettings, found: Found | None) -> Found:
    """What a replica that starts goes on from, of what is on disk."""
    found = found or Found()
    if settings.delivery is Delivery.AT_MOST_ONCE:
        # It may have kept something before its delivery was changed.
        return replace(found, record=None, state=None, queues=())
    return found
