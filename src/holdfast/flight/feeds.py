"""Feeds: what a process sends to its subscribers, a bounded queue for each.

The driver's loop puts feed messages in, the thread that serves the subscriber takes them out.
Neither waits for the other: when a subscriber is so slow that its queue is full, the feed ends
with that reason, and the subscriber comes back from its own place and is served from what the
stream keeps, in memory or in its log. So a slow reader costs a queue, and nobody else anything.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.flight as flight

from holdfast.blocks import Block
from holdfast.core.frame import Header, Kind
from holdfast.core.messages import FeedFrames, Part, StreamFrame, SubscribeRefused
from holdfast.flight.parts import cut, part_schema
from holdfast.flight.wire import encode_header, encode_refusal

QUEUE_BYTES = 64 << 20
# What a subscriber lacks goes out in blocks of up to so many tuples, however small the frames
# were that it missed: a block costs the same on the wire and at the other end whatever it holds.
BLOCK_TUPLES = 8_192
QUEUE_MESSAGES = 4_096
# Each has a thread and a connection's share; so many of one consumer, and of all, are served.
FEEDS_OF_ONE, FEEDS = 100, 1_000
# How long a subscriber may take to notice that its call was cancelled.
_LOOK_SECONDS = 1.0


# To whom, of which kind, how many tuples and their bytes.
Count = Callable[[str, str, Kind, int, int], None]
# Whether a connection to somebody breaks within so many seconds.
Lost = Callable[[str, float], bool]


def _count_nothing(stream: str, consumer: str, kind: Kind, tuples: int, size: int) -> None:
    """For those who do not ask."""


def _never(consumer: str, seconds: float) -> bool:
    return False


class Feed:
    """One subscription, as its provider sees it."""

    def __init__(
        self,
        process: str,
        consumer: str,
        feed: int,
        schema: pa.Schema,
        arrival: Callable[[str, int], float],
        part: Part | None = None,
        count: Count = _count_nothing,
        stream: str = "",
        lost: Lost = _never,
    ) -> None:
        """``arrival``: when so many bytes that are sent to somebody now will be there.

        ``part``: what the subscriber takes of the tuples, all if it is None.
        ``count`` is told of tuples that go out: of which stream, to whom, of which kind, how many
        and their bytes.
        ``lost``: whether the connection breaks within some time.
        """
        self._lost, self._looked_at = lost, time.monotonic()
        self._stream = stream
        self._arrival = arrival
        self._count = count
        self._part = part
        self.schema = schema if part is None else part_schema(schema)
        self.consumer = consumer
        self.id = feed
        self._process = process
        self._empty = pa.RecordBatch.from_pylist([], schema=self.schema)
        self._messages: deque[tuple[FeedFrames, int, float]] = deque()
        self._bytes = 0
        # When the newest message arrives; none overtakes another.
        self._newest_due = 0.0
        self._refused: SubscribeRefused | None = None
        self._ended: str | None = None
        self._changed = threading.Condition()

    @property
    def ended(self) -> str | None:
        """Why the feed is over; None while it is not."""
        return self._ended

    def put(self, message: FeedFrames) -> bool:
        """Queue a message; False if the subscriber is too slow, which ends the feed."""
        size = sum(frame.block.nbytes for frame in message.frames if isinstance(frame.block, Block))
        with self._changed:
            if self._ended is not None:
                return False
            # The first message is what the subscriber lacks: it is shared, and may be anything.
            full = self._bytes + size > QUEUE_BYTES or len(self._messages) >= QUEUE_MESSAGES
            if full and self._messages:
                self._end(
                    f"{self.consumer} fell behind: {len(self._messages)} messages with "
                    f"{self._bytes >> 10} KiB wait for it"
                )
                return False
            self._newest_due = max(self._newest_due, self._arrival(self.consumer, size))
            self._messages.append((message, size, self._newest_due))
            self._bytes += size
            self._changed.notify_all()
            return True

    def refuse(self, refusal: SubscribeRefused) -> None:
        """The driver does not grant the feed."""
        with self._changed:
            self._refused = refusal
            self._changed.notify_all()

    def end(self, reason: str) -> None:
        """Stop serving."""
        with self._changed:
            self._end(reason)

    def _end(self, reason: str) -> None:
        if self._ended is None:
            self._ended = reason
        self._messages.clear()
        self._bytes = 0
        self._changed.notify_all()

    def batches(self, context: flight.ServerCallContext) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        """What goes over the wire, until the feed ends or the subscriber is gone."""
        while True:
            message = self._next(context)
            if message is None:
                return
            runs = list(_runs(message.frames))
            for index, run in enumerate(runs):
                header = _header(run)
                batch = _batch(run) if self._part is None else cut(run, self._part)
                left = len(runs) - index - 1
                told = (run[0].why, run[0].claims)
                metadata = encode_header(message.feed, message.seq, left, header, *told)
                if batch is not None:
                    self._count(
                        self._stream, self.consumer, header.kind, batch.num_rows, batch.nbytes
                    )
                yield self._empty if batch is None else batch, metadata

    def _next(self, context: flight.ServerCallContext) -> FeedFrames | None:
        with self._changed:
            while self._ended is None:
                if self._breaks():
                    self._end("the connection was lost")
                    continue
                left = self._messages[0][2] - time.monotonic() if self._messages else _LOOK_SECONDS
                if left <= 0:
                    message, size, _ = self._messages.popleft()
                    self._bytes -= size
                    return message
                if self._refused is not None and not self._messages:
                    return None
                if context.is_cancelled():
                    return None
                self._changed.wait(min(left, _LOOK_SECONDS))
        raise flight.FlightServerError(f"{self._process} ended the feed: {self._ended}")

    def _breaks(self) -> bool:
        """Whether the connection broke since this was last asked."""
        before, self._looked_at = self._looked_at, time.monotonic()
        return self._lost(self.consumer, self._looked_at - before)

    def refusal(self) -> tuple[pa.RecordBatch, bytes] | None:
        """The one batch of a feed that was not granted."""
        if self._refused is None:
            return None
        return self._empty, encode_refusal(self._refused)


def _runs(frames: tuple[StreamFrame, ...]) -> Iterator[list[StreamFrame]]:
    """The frames of a message; small stable ones that follow on each other together."""
    run: list[StreamFrame] = []
    tuples = 0
    for frame in frames:
        header = frame.header
        follows = (
            header.kind is Kind.STABLE
            and bool(run)
            and run[-1].header.kind is Kind.STABLE
            and run[-1].header.next_id == header.first_id
            and tuples + header.count <= BLOCK_TUPLES
        )
        if run and not follows:
            yield run
            run, tuples = [], 0
        run.append(frame)
        tuples += header.count
    if run:
        yield run


def _batch(run: list[StreamFrame]) -> pa.RecordBatch | None:
    """The tuples of a run of frames, as one block."""
    batches = [frame.block.batch() for frame in run if isinstance(frame.block, Block)]
    if len(run) == 1:
        return batches[0] if batches else None
    return pa.concat_batches(batches)


def _header(run: list[StreamFrame]) -> Header:
    """One header for a run of frames."""
    header = run[0].header
    if len(run) == 1:
        return header
    headers = [frame.header for frame in run]
    return Header(
        header.kind,
        header.first_id,
        sum(each.count for each in headers),
        min(each.stime_min for each in headers),
        max(each.stime_max for each in headers),
        max(each.tmax for each in headers),
    )


class Feeds:
    """All feeds of a process."""

    def __init__(
        self,
        process: str,
        arrival: Callable[[str, int], float] = lambda consumer, size: 0.0,
        count: Count = _count_nothing,
        lost: Lost = _never,
    ) -> None:
        """``arrival``: when so many bytes that are sent to somebody now will be there.

        ``count`` is told of tuples that go out.
        ``lost``: whether a connection to somebody breaks within some time.
        """
        self._lost = lost
        self._process = process
        self._arrival = arrival
        self._count = count
        self._feeds: dict[tuple[str, int], Feed] = {}
        self._lock = threading.Lock()
        self._closed = False

    def open(
        self,
        consumer: str,
        feed: int,
        schema: pa.Schema,
        part: Part | None = None,
        stream: str = "",
    ) -> Feed:
        """A new feed; one of the same id is replaced."""
        about = (self._process, consumer, feed, schema, self._arrival, part, self._count, stream)
        made = Feed(*about, self._lost)
        with self._lock:
            if self._closed:
                raise flight.FlightUnavailableError(f"{self._process} is stopping")
            before = self._feeds.get((consumer, feed))
            if before is None:
                self._check_room(consumer)
            self._feeds[consumer, feed] = made
        if before is not None:
            before.end("replaced by a newer subscription")
        return made

    def _check_room(self, consumer: str) -> None:
        """Whoever forgets to end its subscriptions must not take everybody else's place."""
        own = sum(name == consumer for name, _ in self._feeds)
        if own >= FEEDS_OF_ONE or len(self._feeds) >= FEEDS:
            raise flight.FlightUnavailableError(
                f"{self._process} serves {len(self._feeds)} subscriptions, {own} of them to "
                f"{consumer}; it serves {FEEDS_OF_ONE} to one and {FEEDS} in all. End some"
            )

    def close_feed(self, feed: Feed) -> None:
        """The subscriber's call is over."""
        feed.end("over")
        with self._lock:
            if self._feeds.get((feed.consumer, feed.id)) is feed:
                del self._feeds[feed.consumer, feed.id]

    def deliver(self, consumer: str, message: FeedFrames | SubscribeRefused) -> bool:
        """Take what the driver sends; False if the feed is not, or no longer, there."""
        with self._lock:
            feed = self._feeds.get((consumer, message.feed))
        if feed is None:
            return False
        if isinstance(message, SubscribeRefused):
            feed.refuse(message)
            return True
        return feed.put(message)

    def unsubscribe(self, consumer: str, feed: int) -> None:
        """The subscriber wants no more."""
        with self._lock:
            found = self._feeds.get((consumer, feed))
        if found is not None:
            found.end("unsubscribed")

    def close(self, within_s: float = 1.0) -> None:
        """End every feed and wait a little for their threads."""
        with self._lock:
            self._closed = True
            feeds = list(self._feeds.values())
        for feed in feeds:
            feed.end(f"{self._process} is stopping")
        deadline = time.monotonic() + within_s
        while self._feeds and time.monotonic() < deadline:
            time.sleep(0.01)

    def __len__(self) -> int:
        return len(self._feeds)
