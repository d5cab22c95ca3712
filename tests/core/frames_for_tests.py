"""Frames without tuples, for tests of machines."""

from __future__ import annotations

from holdfast.core.frame import Header, Kind
from holdfast.core.messages import StreamFrame


def stable(first_id: int, *stimes: int) -> StreamFrame:
    """A stable frame with one tuple per time."""
    return data(Kind.STABLE, first_id, *stimes)


def tentative(first_id: int, *stimes: int) -> StreamFrame:
    return data(Kind.TENTATIVE, first_id, *stimes)


def data(kind: Kind, first_id: int, *stimes: int) -> StreamFrame:
    header = Header(kind, first_id, len(stimes), min(stimes), max(stimes), max(stimes))
    return StreamFrame(header, stimes)


def boundary(next_id: int, stime: int) -> StreamFrame:
    return mark(Kind.BOUNDARY, next_id, stime)


def mark(kind: Kind, next_id: int, stime: int = 0) -> StreamFrame:
    return StreamFrame(Header(kind, next_id, 0, stime, stime))


def kinds(frames: tuple[StreamFrame, ...]) -> list[str]:
    return [frame.header.kind.name for frame in frames]
