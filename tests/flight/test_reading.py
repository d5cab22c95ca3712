"""How the reading end of a subscription hands on what comes."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from holdfast.blocks import Block
from holdfast.core.frame import Header, Kind
from holdfast.core.messages import FeedFrames, Subscribe, SubscribeRefused
from holdfast.flight import peers
from holdfast.flight.peers import FeedGap, _Reading
from holdfast.flight.wire import encode_header
from tests.core.frames_for_tests import kinds


@dataclass
class Chunk:
    """What Flight gives a reader: a batch and its metadata."""

    data: pa.RecordBatch
    app_metadata: pa.Buffer


class Reader:
    def __init__(self, headers: list[tuple[int, int, Header]]) -> None:
        self._chunks = [
            Chunk(
                pa.RecordBatch.from_pydict({"value": list(range(header.count))}),
                pa.py_buffer(encode_header(7, seq, left, header)),
            )
            for seq, left, header in headers
        ]

    def read_chunk(self) -> Chunk:
        if not self._chunks:
            raise StopIteration
        return self._chunks.pop(0)


class Peer:
    """The calling side of one peer, as far as a subscription knows it."""

    def __init__(self) -> None:
        self.posted: list[FeedFrames | SubscribeRefused] = []

    def may_read(self) -> bool:
        return True

    def wait_to_hear(self, timeout_s: float | None, given_up: object) -> None:
        return None

    def took(self, block: Block) -> None:
        return None

    def went_well(self) -> None:
        return None

    def post_frames(self, message: FeedFrames | SubscribeRefused) -> None:
        self.posted.append(message)


def read(headers: list[tuple[int, int, Header]]) -> list[FeedFrames]:
    peer = Peer()
    reading = _Reading(peer, Subscribe("s", 7, 0, 0))  # type: ignore[arg-type]
    reading._read(Reader(headers))
    return [one for one in peer.posted if isinstance(one, FeedFrames)]


def test_a_tentative_block_stays_with_its_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_PIECE_BYTES", 80)
    taken = read(
        [
            (0, 4, Header(Kind.STABLE, 0, 10, 1, 9)),
            (0, 3, Header(Kind.BOUNDARY, 10, 0, 10, 10)),
            (0, 2, Header(Kind.TENTATIVE, 10, 10, 11, 19)),
            (0, 1, Header(Kind.TENTATIVE_BOUNDARY, 10, 0, 20, 20)),
            (0, 0, Header(Kind.TENTATIVE_BOUNDARY, 10, 0, 30, 30)),
            (1, 0, Header(Kind.BOUNDARY, 10, 0, 20, 20)),
        ]
    )
    assert [kinds(one.frames) for one in taken] == [
        ["STABLE"],
        ["BOUNDARY", "TENTATIVE", "TENTATIVE_BOUNDARY"],
        ["TENTATIVE_BOUNDARY"],
        ["BOUNDARY"],
    ]
    assert [one.seq for one in taken] == [0, 1, 2, 3]


def test_what_came_before_a_break_counts() -> None:
    """Half a megabyte is a minute of many a source; the connection breaks before its end."""
    rows, blocks = 8_192, 8
    headers = [
        (0, blocks - number, Header(Kind.STABLE, number * rows, rows, 1, 9))
        for number in range(blocks)
    ]
    taken = read(headers)
    assert sum(frame.header.count for one in taken for frame in one.frames) == rows * blocks


def test_a_message_that_is_missing_ends_the_subscription() -> None:
    with pytest.raises(FeedGap, match="skips from message 1 to 2"):
        read(
            [
                (0, 0, Header(Kind.BOUNDARY, 0, 0, 10, 10)),
                (2, 0, Header(Kind.BOUNDARY, 0, 0, 20, 20)),
            ]
        )
