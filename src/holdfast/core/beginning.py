"""How a replica begins: from nothing, from its disk, or from an earlier life in its process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.core.bounds import BoundWatch
from holdfast.core.frame import Header, Kind, StreamFrame
from holdfast.core.membership import Consumers
from holdfast.core.records import UNKNOWN_ID, LoggedStream, RecoveryRecord
from holdfast.core.serving import ServedStream
from holdfast.core.settings import Delivery, Output, ReplicaSettings

EMPTY_RECORD = RecoveryRecord(0, 0, (), ())


@dataclass(frozen=True)
class Beginning:
    """How a replica begins that takes over from another life in the same process.

    state         the state at the record's boundary, or what it can be rebuilt from; None is
                  the empty one.
    served        the streams it serves, with their feeds.
    acks          what it may acknowledge to its producers; None for all the record allows.
    first_job     numbers that no earlier job and append has had.
    open          accept subscribers before it has caught up: it has its state, and is no more
                  than a stable replica that is behind.
    opens         the same from the first results on: it has nothing, and only they tell that its
                  inputs can still be had from their beginning.
    consumers     who its consumers are, and which lives of them count.
    incarnation   which life of its directory it is.
    bounds        how much is kept for those who are away.
    patient       readers may confirm results before they are written (``core.delivery``).
    """

    state: object = None
    served: Mapping[str, ServedStream] = field(default_factory=dict)
    acks: Mapping[str, int] | None = None
    first_job: int = 1
    first_append: int = 1
    open: bool = False
    consumers: Consumers | None = None
    incarnation: int = 0
    bounds: BoundWatch = field(default_factory=BoundWatch)
    patient: bool = False
    opens: bool = False


def has_begun(settings: ReplicaSettings, held: tuple[RecoveryRecord, object] | None) -> bool:
    """Whether it is known where streams begin: there is something to go on from, or no need."""
    lossy = settings.delivery is Delivery.AT_MOST_ONCE
    return lossy or (held is not None and held[0].boundary > 0)


def serve(
    settings: ReplicaSettings, output: Output, log: LoggedStream | None = None
) -> ServedStream:
    """An output stream, with what a log has of it."""
    log = log or LoggedStream(output.stream, 0, ())
    limit = settings.timing.tentative_frames
    return ServedStream(output.stream, output.consumers, log.first_id, log.frames, limit)


def whole_frames(logged: LoggedStream) -> LoggedStream:
    """The frames up to the last BOUNDARY: what follows it was cut off in the middle.

    The log keeps the rest. Its tuples are computed again, under the same ids, and not written
    twice (``core.keeping``).
    """
    frames = list(logged.frames)
    while frames and frames[-1].header.kind is not Kind.BOUNDARY:
        frames.pop()
    return LoggedStream(logged.stream, logged.first_id, tuple(frames))


def at_record(logged: LoggedStream, record: RecoveryRecord | None) -> LoggedStream:
    """What a log has of a stream, or where the record goes on with it if that is further.

    It is if the log does not know where in time it ends (``core.keeping``).
    """
    first_id = 0 if record is None else dict(record.outputs).get(logged.stream, 0)
    if record is None or first_id == UNKNOWN_ID:
        return logged
    if logged.frames and logged.frames[-1].header.next_id >= first_id:
        return logged
    stime = record.boundary
    mark = StreamFrame(Header(Kind.BOUNDARY, first_id, 0, stime, stime, stime))
    return LoggedStream(logged.stream, first_id, (mark,))
