"""A message that is handed on in pieces is safe wherever its connection breaks."""

from __future__ import annotations

import pytest

from holdfast.core.frame import Kind
from holdfast.core.messages import FeedFrames, StreamFrame, Subscribe
from holdfast.core.pieces import ends_piece
from holdfast.core.serving import ServedStream
from holdfast.core.stream_copy import StreamCopy
from tests.core.frames_for_tests import boundary, mark, stable, tentative


def provider() -> ServedStream:
    """Ten stable tuples, then three buckets of tentative ones."""
    stream = ServedStream("s", ("c",))
    for number in range(10):
        stream.publish((stable(number, 10 * number), boundary(number + 1, 10 * number + 10)))
    for bucket in (100, 110, 120):
        end = mark(Kind.TENTATIVE_BOUNDARY, 10, bucket + 10)
        stream.publish((tentative(10, bucket, bucket + 5), end))
    return stream


def lacking(stream: ServedStream, copy: StreamCopy) -> list[StreamFrame]:
    request = Subscribe("s", 1, copy.next_id, copy.tentative_boundary)
    (sent,) = stream.subscribe("c", request)
    message = sent.message  # type: ignore[union-attr]
    assert isinstance(message, FeedFrames)
    return list(message.frames)


def take(copy: StreamCopy, frames: list[StreamFrame]) -> list[tuple[str, int]]:
    """What is new in some frames, tuple by tuple."""
    taken = []
    for frame in frames:
        held = copy.take(frame, 1)
        if held is not None:
            stimes: tuple[int, ...] = held.block  # type: ignore[assignment]
            taken += [
                (held.header.kind.name, stime)
                for stime in stimes[held.skip :]
                if stime >= held.stime_from
            ]
    return taken


def pieces_of(frames: list[StreamFrame]) -> list[list[StreamFrame]]:
    """As small as they may be."""
    found: list[list[StreamFrame]] = [[]]
    for index, frame in enumerate(frames):
        found[-1].append(frame)
        left = len(frames) - index - 1
        if ends_piece(frame.header, left, 1, 1) and left:
            found.append([])
    return found


@pytest.mark.parametrize("breaks_after", range(1, 16))
def test_a_connection_may_break_between_any_two_pieces(breaks_after: int) -> None:
    stream = provider()
    pieces = pieces_of(lacking(stream, StreamCopy("s")))
    assert len(pieces) > 12
    copy = StreamCopy("s")
    taken = [one for piece in pieces[:breaks_after] for one in take(copy, piece)]
    taken += take(copy, lacking(stream, copy))
    expected = [("STABLE", 10 * number) for number in range(10)]
    expected += [("TENTATIVE", stime) for stime in (100, 105, 110, 115, 120, 125)]
    assert taken == expected, "each tuple once"


def test_a_small_message_is_one_piece() -> None:
    frames = lacking(provider(), StreamCopy("s"))
    ends = [
        ends_piece(frame.header, len(frames) - index - 1, index, 1_000)
        for index, frame in enumerate(frames)
    ]
    assert ends == [False] * (len(frames) - 1) + [True]
