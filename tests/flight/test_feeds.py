"""A slow subscriber costs a queue, and nobody else anything."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from holdfast.blocks import Block
from holdfast.core.frame import Header, Kind
from holdfast.core.messages import FeedFrames, NotServed, StreamFrame, SubscribeRefused
from holdfast.flight import feeds
from holdfast.flight.feeds import Feeds
from holdfast.flight.wire import decode_metadata

SCHEMA = pa.schema([("number", pa.int64())])


class Call:
    """A call that is never cancelled."""

    def is_cancelled(self) -> bool:
        return False


def message(seq: int, count: int) -> FeedFrames:
    block = Block(pa.record_batch({"number": list(range(count))}))
    header = Header(Kind.STABLE, seq * count, count, 1, 2, 2)
    mark = Header(Kind.BOUNDARY, (seq + 1) * count, 0, 3, 3, 3)
    return FeedFrames(5, seq, (StreamFrame(header, block), StreamFrame(mark)))


def test_frames_go_out_in_order_marks_as_empty_batches() -> None:
    found = Feeds("p")
    feed = found.open("c", 5, SCHEMA)
    assert found.deliver("c", message(0, 10))
    batches = feed.batches(Call())
    data, metadata = next(batches)
    assert (data.num_rows, decode_metadata(metadata)["left"]) == (10, 1)
    mark, metadata = next(batches)
    assert (mark.num_rows, decode_metadata(metadata)["left"]) == (0, 0)


def test_small_frames_that_were_missed_go_out_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "BLOCK_TUPLES", 25)
    missed = [message(seq, 10).frames[0] for seq in range(5)]
    mark = StreamFrame(Header(Kind.BOUNDARY, 50, 0, 3, 3, 3))
    undo = StreamFrame(Header(Kind.UNDO, 0, 0, 3, 3))
    # One that overlaps the one before it stays by itself.
    again = message(3, 10).frames[0]
    found = Feeds("p")
    feed = found.open("c", 5, SCHEMA)
    assert found.deliver("c", FeedFrames(5, 0, (undo, *missed, again, mark)))
    batches = feed.batches(Call())
    sent = [next(batches) for _ in range(6)]
    headers = [decode_metadata(metadata) for _, metadata in sent]
    assert [each["left"] for each in headers] == [5, 4, 3, 2, 1, 0]
    ids = [(each["header"].first_id, each["header"].count) for each in headers]
    assert ids == [(0, 0), (0, 20), (20, 20), (40, 10), (30, 10), (50, 0)]
    assert [batch.num_rows for batch, _ in sent] == [0, 20, 20, 10, 10, 0]
    assert sent[1][0].column("number").to_pylist() == [*range(10), *range(10)]


def test_a_full_queue_ends_the_feed_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "QUEUE_BYTES", 2_000)
    found = Feeds("p")
    slow, quick = found.open("slow", 5, SCHEMA), found.open("quick", 5, SCHEMA)
    reading = quick.batches(Call())
    taken = 0
    for seq in range(10):
        found.deliver("slow", message(seq, 100))
        assert found.deliver("quick", message(seq, 100))
        next(reading), next(reading)
        taken += 1
    assert taken == 10
    assert slow.ended is not None
    assert "slow fell behind" in slow.ended
    with pytest.raises(flight.FlightServerError, match="p ended the feed: slow fell behind"):
        next(slow.batches(Call()))


def test_what_a_subscriber_lacks_may_be_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "QUEUE_BYTES", 2_000)
    found = Feeds("p")
    feed = found.open("c", 5, SCHEMA)
    assert found.deliver("c", message(0, 100_000))
    assert next(feed.batches(Call()))[0].num_rows == 100_000


def test_a_refusal_is_one_batch_and_the_end() -> None:
    found = Feeds("p")
    feed = found.open("c", 5, SCHEMA)
    assert found.deliver("c", SubscribeRefused(5, NotServed.RECOVERING))
    assert list(feed.batches(Call())) == []
    refusal = feed.refusal()
    assert refusal is not None
    assert decode_metadata(refusal[1]) == {"refused": "recovering", "detail": ""}


def test_nobody_is_sent_what_nobody_asked_for() -> None:
    assert not Feeds("p").deliver("c", message(0, 1))


def test_nobody_takes_everybodys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "FEEDS_OF_ONE", 2)
    monkeypatch.setattr(feeds, "FEEDS", 3)
    found = Feeds("p")
    one = found.open("c", 1, SCHEMA)
    found.open("c", 2, SCHEMA)
    with pytest.raises(flight.FlightUnavailableError, match="2 of them to c; it serves 2 to one"):
        found.open("c", 3, SCHEMA)
    # One that is opened anew takes its own place.
    found.open("c", 2, SCHEMA)
    found.open("d", 1, SCHEMA)
    with pytest.raises(flight.FlightUnavailableError, match="p serves 3 subscriptions"):
        found.open("e", 1, SCHEMA)
    found.close_feed(one)
    found.open("e", 1, SCHEMA)
    assert len(found) == 3
