"""How often a fragment's results count: what a replica keeps for that, and when it acknowledges.

    delivery       kept on disk                 acknowledged is               a restart goes on
    exactly-once   record, state, results       what a record on disk has     from the record
    at-least-once  record and state             what readers have confirmed   from the record
    at-most-once   nothing                      what came                     from now on

Theory of operation. *Exactly once*, results that somebody still needs are in a log, so that whoever
reads them finds them there, under the same ids, whatever is lost meanwhile. A log is for readers
who are behind or away. Those who keep up confirm results a moment after they went out, and what
everybody has confirmed would be trimmed as soon as it is written. So a replica that runs alone, or
beside others, holds frames back for a while (``PatientKeeper``). If readers confirm them meanwhile
they are never written: the record alone goes to disk, and with it a mark that says where the log
goes on. If not, all that is held is written, and everything after it at once, until readers have
confirmed all that the log has. Until a record is there its input is not acknowledged: after a crash
everything that was held is computed again, under the same ids. So it is as if frames had been
written and trimmed at once, but for a record that is a little older.

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

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from holdfast.core.appender import DURABLE, Appender
from holdfast.core.beginning import EMPTY_RECORD, serve
from holdfast.core.consumer import Consumer
from holdfast.core.effects import Append, Effect
from holdfast.core.frame import Header, Kind
from holdfast.core.messages import StreamFrame
from holdfast.core.records import UNKNOWN_ID, Found, LoggedStream, RecoveryRecord
from holdfast.core.serving import ServedStream
from holdfast.core.settings import Delivery, Keeping, ReplicaSettings
from holdfast.core.stream_copy import ANYWHERE, StreamCopy

State = tuple[RecoveryRecord, object]

# For so many intervals of the record results wait for readers before they are written,
PATIENCE_RECORDS = 3
# and no more than so many bytes of them: they are in memory.
HELD_BYTES = 64 << 20


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

    def last(self) -> list[Append]:
        """The replica goes: write what has gone out."""
        return self._appender.last()

    @property
    def unwritten(self) -> State | None:
        """The newest record, where it may have waited for so long that an end is to write it."""
        return None


class PatientKeeper(Keeper):
    """Exactly once: what everybody confirms in time is not written, only how far that is."""

    def __init__(
        self,
        appender: Appender,
        served: Mapping[str, ServedStream],
        consumer: Consumer,
        patience_us: int,
    ) -> None:
        super().__init__(appender, served, consumer)
        self._patience_us = patience_us
        # What is held back, and its bytes; up to which id the log was given everything else.
        self._held: dict[str, deque[StreamFrame]] = {}
        self._held_bytes = 0
        self._written: dict[str, int] = {}
        # Of which streams something was confirmed that the log does not have.
        self._dropped: set[str] = set()
        # The record that waits for readers, since when, and the newest, which is the next to wait.
        self._waits: State | None = None
        self._waits_since: int | None = None
        self._newest: State | None = None
        # The newest that they have confirmed, until it is written.
        self._confirmed: State | None = None

    def begin(self, queue: LoggedStream) -> None:
        super().begin(queue)
        self._written[queue.stream] = self._served[queue.stream].next_id

    def emitted(self, stream: str, frames: tuple[StreamFrame, ...]) -> None:
        durable = [frame for frame in frames if frame.header.kind in DURABLE]
        self._held.setdefault(stream, deque()).extend(durable)
        self._held_bytes += sum(frame.nbytes for frame in durable)

    def describe(self, record: RecoveryRecord, state: object) -> None:
        self._newest = (record, state)
        self._waits = self._waits or self._newest

    def flush(self, now: int) -> list[Effect]:
        if self._waits is not None and self._waits_since is None:
            self._waits_since = now
        all_have_the_log = self._all_have_the_log()
        if all_have_the_log:
            self._look_at_readers(now)
        if not (all_have_the_log and self._may_hold(now)):
            self._write_held()
        return super().flush(now)

    def last(self) -> list[Append]:
        self._write_held()
        return super().last()

    @property
    def unwritten(self) -> State | None:
        return self._newest or self._appender.waiting

    def _all_have_the_log(self) -> bool:
        """Whether readers have confirmed what the log has been given."""
        for stream, next_id in self._written.items():
            if self._served[stream].first_id < next_id:
                return False
        return True

    def _may_hold(self, now: int) -> bool:
        """Whether readers, who have what the log has, confirm the rest soon enough."""
        patient = self._waits_since is None or now - self._waits_since < self._patience_us
        return patient and self._held_bytes <= HELD_BYTES

    def _look_at_readers(self, now: int) -> None:
        """Drop what they have confirmed; write how far that is when a record is due."""
        for stream, frames in self._held.items():
            first_id = self._served[stream].first_id
            while frames and frames[0].header.next_id <= first_id:
                self._held_bytes -= frames.popleft().nbytes
                self._dropped.add(stream)
        while self._waits is not None and self._is_confirmed(self._waits[0]):
            self._confirmed, newer = self._waits, self._newest is not self._waits
            self._waits = self._newest if newer else None
            self._waits_since = now
        if self._waits is None:
            self._waits_since = None
        if self._confirmed is not None and self._appender.takes_record(now):
            record = self._confirmed[0]
            for stream, next_id in record.outputs:
                self._go_on_at(stream, next_id, record.boundary)
            self._appender.describe(*self._confirmed)
            self._confirmed = None

    def _go_on_at(self, stream: str, next_id: int, stime: int) -> None:
        """Have the log end with a mark at this place, without what is confirmed before it."""
        mark = Header(Kind.BOUNDARY, next_id, 0, stime, stime, stime)
        self._appender.go_on_at(stream, next_id)
        self._appender.add(stream, (StreamFrame(mark),))

    def _is_confirmed(self, record: RecoveryRecord) -> bool:
        return all(
            next_id != UNKNOWN_ID and self._served[stream].first_id >= next_id
            for stream, next_id in record.outputs
        )

    def _write_held(self) -> None:
        # A record must not be ahead of the log, also where nothing is left to be written.
        dropped, self._dropped = self._dropped, set()
        for stream, frames in self._held.items():
            if frames:
                if stream in dropped:
                    # All before it is confirmed. Else what is before may still be on its way to the
                    # log, or have to be written once more: there is no gap to go on after.
                    dropped.discard(stream)
                    self._appender.go_on_at(stream, frames[0].header.first_id)
                self._appender.add(stream, tuple(frames))
                self._written[stream] = frames[-1].header.next_id
        self._held, self._held_bytes = {}, 0
        if self._newest is not None:
            record = self._newest[0]
            for stream, next_id in record.outputs:
                if stream in dropped:
                    self._go_on_at(stream, next_id, record.boundary)
            self._appender.describe(*self._newest)
        self._waits = self._newest = self._confirmed = self._waits_since = None


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
        came = {name: one.copy.next_id for name, one in self._consumer.upstreams.items()}
        self._consumer.acknowledge({name: max(0, next_id) for name, next_id in came.items()})
        return []


def keeper_of(
    settings: ReplicaSettings,
    appender: Appender,
    served: Mapping[str, ServedStream],
    consumer: Consumer,
    patient: bool = False,
) -> Keeper:
    """What keeps for a replica of these settings; ``served`` is filled later.

    ``patient``: readers may confirm results before they are written.
    """
    match settings.delivery:
        case Delivery.AT_LEAST_ONCE:
            return ConfirmedKeeper(appender, served, consumer)
        case Delivery.AT_MOST_ONCE:
            return NoKeeper(appender, served, consumer)
        case _ if patient and settings.keeping is not Keeping.WINDOWS:
            # A reader that is a replica confirms what it has recorded, and looks at that as often.
            patience_us = PATIENCE_RECORDS * settings.timing.record_interval_us
            return PatientKeeper(appender, served, consumer, patience_us)
        case _:
            return Keeper(appender, served, consumer)


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
