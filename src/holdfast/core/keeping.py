"""What a disk takes of what it is given: the rules that the product's and the simulator's follow.

A log has each stable tuple once. Two lives of a replica, and two copies of a fragment, cut their
stream into frames differently, and each is given what the other wrote already: then only the
tuples that are new are written. A mark counts where the log is when it comes; one that is behind
says nothing new. Window states are true whoever wrote them, and are written as they come.

A record is replaced by one that is as far or further, never by one that is less far: an order of
an earlier life may still be on its way to the disk when the state of the other copy, which is
further, has been taken. The record of a later incarnation, which joined anew, replaces any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.core.frame import Kind, StreamFrame
from holdfast.core.records import LoggedStream, RecoveryRecord

WINDOWS = (Kind.WINDOW_OPEN, Kind.WINDOW_CHECK)


class LogGap(Exception):
    """A frame begins after the id that comes next in the log."""


def lacking(frames: Iterable[StreamFrame], next_id: int) -> Iterator[tuple[StreamFrame, int]]:
    """What a log that goes on with ``next_id`` takes of these frames.

    Each comes with how many of its first tuples the log has already.
    """
    for frame in frames:
        header = frame.header
        if header.first_id > next_id:
            raise LogGap(f"id {header.first_id} came, {next_id} is next")
        if header.kind is Kind.STABLE:
            if header.next_id > next_id:
                yield frame, next_id - header.first_id
                next_id = header.next_id
        elif header.kind in WINDOWS or header.first_id == next_id:
            yield frame, 0


def standing(stream: str, first_id: int, frames: Iterable[StreamFrame]) -> LoggedStream | None:
    """What of a log that has been trimmed below ``first_id`` counts when it is opened.

    A SKIP begins the stream anew, and everyone has what was before. Where in time its tuples are,
    a stream knows by the BOUNDARY behind them. If there is none, because an order was cut short
    after a SKIP, or because all that was trimmed came after the last one, it is None, and the
    stream goes on where the record says.
    """
    kept: list[StreamFrame] = []
    bounded = False
    for frame in frames:
        kind = frame.header.kind
        if kind is Kind.SKIP:
            kept, first_id, bounded = [], frame.header.first_id, False
        elif kind not in WINDOWS:
            kept.append(frame)
            bounded |= kind is Kind.BOUNDARY and frame.header.first_id >= first_id
    return LoggedStream(stream, first_id, tuple(kept)) if bounded else None


def in_order(queues: Iterable[LoggedStream]) -> list[LoggedStream]:
    """The pieces of streams that a checkpoint brings, as they are to be written.

    A piece of the other copy's log begins where its window states do, its output queue where
    somebody still needs tuples: of one stream, what begins first comes first.
    """
    return sorted(queues, key=lambda queue: queue.first_id)


def replaces(new: RecoveryRecord, kept: RecoveryRecord | None) -> bool:
    """Whether ``new`` takes the place of the record on disk."""
    if kept is None or new.incarnation != kept.incarnation:
        return kept is None or new.incarnation > kept.incarnation
    return new.boundary >= kept.boundary
