"""The calling side: heartbeats, messages and subscriptions to other processes.

For each peer there is one connection, one thread for what is asked and said, and one thread for
each open subscription. Every call has a deadline except a subscription, which the heartbeats
watch over. gRPC connects again by itself, with back-off; a subscription that ends is reported
to the driver, after a pause that grows while the peer keeps failing, and the driver opens
another where it finds it best.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from holdfast.blocks import Block
from holdfast.core.events import Event, FeedLost, MessageArrived, PeerUnreachable
from holdfast.core.frame import Header
from holdfast.core.messages import (
    CopyReply,
    CopyRequest,
    FeedFrames,
    HeartbeatReply,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    Message,
    NotServed,
    StreamFrame,
    Subscribe,
    SubscribeRefused,
    Unsubscribe,
)
from holdfast.core.pauses import pause_after
from holdfast.core.pieces import ends_piece
from holdfast.errors import HoldfastError
from holdfast.flight.gone import nobody_listens
from holdfast.flight.links import LinkCut, Links
from holdfast.flight.parts import fits
from holdfast.flight.refused import Refused, refusal_of
from holdfast.flight.roles import Role
from holdfast.flight.security import Security
from holdfast.flight.wire import WireError, decode_message, decode_metadata, encode_message

CALL_SECONDS = 2.0
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 2.0
# The end of a subscription that worked for so long is news and is told at once.
_LASTED_SECONDS = 1.0
_QUEUED = 1_000
# So many peers without an address are spoken of; the rest are as unknown.
_UNKNOWN_NAMED = 100
# A subscriber far behind is sent all it lacks as one message; it is taken in pieces. They are
# small: on a busy machine a subscription may be given up every few seconds, and a minute of tuples
# that must come in one of them would be begun again and again, and never be there.
_PIECE_BYTES = 256 << 10
_CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    # How long a connection may take to be made; a busy machine takes its time.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
]


class FeedGap(HoldfastError):
    """A message of a feed is missing, though its connection stands."""

    def __init__(self, stream: str, expected: int, came: object) -> None:
        super().__init__(
            f"the feed of {stream} skips from message {expected} to {came}; it is opened anew"
        )


Tell = Callable[[str, str, Refused | None], None]
Question = HeartbeatRequest | CopyRequest
# Said again and again, and only the newest matters. They wait for one thread: on a machine so busy
# that a call takes longer than the pause between two of them, a line of old ones would grow, and
# who is told would hear for ever what was so a minute ago.
Repeated = Question | JoinRequest | JoinReply


def connect(location: str, security: Security) -> flight.FlightClient:
    """A client; it connects when it is first used.

    SecurityError if it would send a token in the clear to another machine.
    """
    security = security.current()
    security.check_destination(location)
    return flight.FlightClient(location, generic_options=_CHANNEL, **security.client_options())


def call(
    location: str,
    security: Security,
    name: str,
    action: str,
    options: dict[str, Any] | None = None,
    timeout_s: float = CALL_SECONDS,
    role: Role = Role.OPERATE,
) -> dict[str, Any]:
    """One control action on a process, on a connection of its own."""
    with connect(location, security) as client:
        return act(client, security, name, action, options, timeout_s, role)


def act(
    client: flight.FlightClient,
    security: Security,
    name: str,
    action: str,
    options: dict[str, Any] | None = None,
    timeout_s: float = CALL_SECONDS,
    role: Role = Role.OPERATE,
) -> dict[str, Any]:
    """One control action on a connected process; its answer."""
    body = json.dumps(options or {}).encode()
    headers = security.headers(name, role)
    call_options = flight.FlightCallOptions(timeout=timeout_s, headers=headers)
    results = list(client.do_action(flight.Action(action, body), call_options))
    found: dict[str, Any] = json.loads(results[0].body.to_pybytes()) if results else {}
    return found


class Peers:
    """Everyone a process talks to."""

    def __init__(
        self,
        name: str,
        book: Mapping[str, str],
        security: Security,
        post: Callable[[Event], None],
        on_problem: Tell | None = None,
        may_read: Callable[[], bool] = lambda: True,
        on_block: Callable[[Block], None] = lambda block: None,
        links: Links | None = None,
        role: Role = Role.REPLICATE,
    ) -> None:
        """
        may_read  whether subscriptions should go on taking frames now.
        on_block  is shown every block that comes, in the thread that reads it.
        links     which links are cut; whole if not given.
        role      what this process is to the others.
        """
        self.role = role
        self.links = links or Links()
        self.name = name
        self.security = security
        self.post = post
        self.may_read = may_read
        self.on_block = on_block
        self._book = book
        self._on_problem = on_problem
        self._peers: dict[str, _Peer] = {}
        self._unknown: set[str] = set()
        self._closed = False

    def send(self, to: str, message: Message) -> None:
        """Send a message; best effort."""
        if self._closed:
            return
        if to not in self._peers:
            if to not in self._book:
                self._say_unknown(to)
                return
            self._peers[to] = _Peer(self, to, self._book[to])
        self._peers[to].send(message)

    def _say_unknown(self, to: str) -> None:
        if to not in self._unknown and len(self._unknown) < _UNKNOWN_NAMED:
            self._unknown.add(to)
            self.problem(to, f"nobody knows where it is; known are {sorted(self._book)}")

    def location(self, peer: str) -> str | None:
        """Where a peer is now, as far as is known."""
        with contextlib.suppress(OSError, ValueError, HoldfastError):
            return self._book.get(peer)
        return None

    def problem(self, peer: str, text: str, why: Refused | None = None) -> None:
        """Tell whoever listens what is wrong with a peer, and whether it refuses for good."""
        if self._on_problem is not None and not self._closed:
            self._on_problem(peer, text, why)

    def close(self) -> None:
        """End what is under way; no thread is left that may be in the middle of a call."""
        self._closed = True
        peers = list(self._peers.values())
        for peer in peers:
            peer.close()
        deadline = time.monotonic() + 2 * CALL_SECONDS
        for thread in (thread for peer in peers for thread in peer.threads):
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    @property
    def closed(self) -> bool:
        return self._closed


class _Peer:
    """One other process."""

    def __init__(self, owner: Peers, name: str, location: str) -> None:
        self._owner = owner
        self._name = name
        self._location = location
        self._connect()
        self._links = owner.links
        self._queue: queue.Queue[Message | None] = queue.Queue(_QUEUED)
        # The newest of each kind that waits. Were one taken between a look and a word, nobody would
        # know that nothing of its kind is in the queue any more, and none would ever be sent.
        self._lock = threading.Lock()
        self._newest: dict[type[Repeated], Repeated] = {}
        self._readers: dict[int, _Reading] = {}
        # All whose threads may run, those that were cancelled, too.
        self._readings: list[_Reading] = []
        self._failures = 0
        self._said = ""
        name_of_thread = f"{owner.name} to {name}"
        self._thread = threading.Thread(target=self._work, name=name_of_thread, daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        if isinstance(message, Subscribe):
            reading = _Reading(self, message)
            self._readers[message.feed] = reading
            reading.thread.start()
            self._readings = [one for one in self._readings if one.thread.is_alive()] + [reading]
            return
        if isinstance(message, Unsubscribe):
            reading_or_none = self._readers.pop(message.feed, None)
            if reading_or_none is not None:
                reading_or_none.cancel()
        elif isinstance(message, Repeated):
            # A peer that does not answer is not asked twice.
            with self._lock:
                waits = type(message) in self._newest
                self._newest[type(message)] = message
            if waits:
                return
        try:
            self._queue.put_nowait(message)
        except queue.Full:
            with self._lock:
                self._newest.clear()

    @property
    def threads(self) -> list[threading.Thread]:
        """Those that may be in the middle of a call."""
        return [self._thread, *(reading.thread for reading in self._readings)]

    def close(self) -> None:
        for reading in self._readings:
            reading.cancel()
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)

    def _work(self) -> None:
        while not self._owner.closed:
            message = self._queue.get()
            if message is None:
                break
            if isinstance(message, Repeated):
                with self._lock:
                    message = self._newest.pop(type(message), message)
            if isinstance(message, Question):
                self._ask(message)
            else:
                self._call("message", message)
        self._client.close()

    def _ask(self, request: Question) -> None:
        results = self._call("heartbeat", request)
        if not results:
            return
        try:
            reply = decode_message(results[0].body.to_pybytes())
        except WireError as error:
            self.failed(error)
            return
        if not isinstance(reply, HeartbeatReply | CopyReply):
            self.failed(WireError(f"{type(reply).__name__} is no answer to a heartbeat"))
            return
        self._owner.post(MessageArrived(self._name, reply))

    def _call(self, action: str, message: Message) -> list[flight.Result]:
        options = self.options(CALL_SECONDS)
        body = encode_message(message)
        try:
            self.wait_to_reach(len(body))
            found = list(self._client.do_action(flight.Action(action, body), options))
            self.wait_to_hear(CALL_SECONDS)
        except Exception as error:
            self.failed(error)
            unavailable = isinstance(error, flight.FlightUnavailableError)
            if isinstance(message, CopyRequest) and unavailable and nobody_listens(self._location):
                self._owner.post(PeerUnreachable(self._name))
            return []
        self.went_well()
        return found

    def wait_to_reach(self, size: int = 0) -> None:
        """Wait for the link, and for the way; LinkCut if it stays cut for as long as a call may
        take."""
        if not self._links.wait_to_reach(self._name, CALL_SECONDS, self._is_closed):
            raise LinkCut(self._name)
        self._links.travel(self._name, size)

    def wait_to_hear(
        self, timeout_s: float | None, given_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait until what the peer sends may arrive."""
        if not self._links.wait_to_hear(
            self._name, timeout_s, lambda: given_up() or self._is_closed()
        ):
            raise LinkCut(self._name)

    def cancel(self, reader: flight.FlightStreamReader) -> None:
        """Cancel a call; the peer learns of it once it can be reached."""
        self._links.wait_to_reach(self._name, None, self._is_closed)
        with contextlib.suppress(Exception):
            reader.cancel()

    def is_reachable(self) -> bool:
        return self._is_closed() or self._links.reaches(self._name)

    def _is_closed(self) -> bool:
        return self._owner.closed

    def options(self, timeout_s: float | None) -> flight.FlightCallOptions:
        headers = self._owner.security.headers(self._owner.name, self._owner.role)
        return flight.FlightCallOptions(timeout=timeout_s, headers=headers)

    @property
    def client(self) -> flight.FlightClient:
        return self._client

    def went_well(self) -> None:
        self._failures = 0
        self._said = ""

    def failed(self, error: Exception) -> None:
        self._failures += 1
        said = explain(error)
        if said != self._said:
            self._said = said
            self._owner.problem(self._name, said, refusal_of(error))
        location = self._owner.location(self._name)
        if location not in (None, self._location):
            # It has moved to another machine. Calls under way on the old connection end there.
            self._location, self._failures = location, 0
            self._connect()
        elif self._owner.security.current().client_options() != self._made_with:
            self._connect()  # our certificate was renewed since

    def _connect(self) -> None:
        self._made_with = self._owner.security.current().client_options()
        self._client = connect(self._location, self._owner.security)

    def pause_seconds(self) -> float:
        """How long to wait before trying again."""
        return pause_after(self._failures + 1, _SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)

    def post_frames(self, message: FeedFrames | SubscribeRefused) -> None:
        self._owner.post(MessageArrived(self._name, message))

    def lost(self, feed: int) -> None:
        if self._readers.pop(feed, None) is not None and not self._owner.closed:
            self._owner.post(FeedLost(feed))

    def took(self, block: Block) -> None:
        self._owner.on_block(block)

    def may_read(self) -> bool:
        return self._owner.closed or self._owner.may_read()


class _Reading:
    """The thread that reads one subscription."""

    def __init__(self, peer: _Peer, request: Subscribe) -> None:
        self._peer = peer
        self._request = request
        self._reader: flight.FlightStreamReader | None = None
        self._cancelled = False
        self.thread = threading.Thread(
            target=self._run, name=f"feed of {request.stream}", daemon=True
        )

    def cancel(self) -> None:
        self._cancelled = True
        reader = self._reader
        if reader is not None and self._peer.is_reachable():
            self._peer.cancel(reader)

    def _run(self) -> None:
        granted, opened = True, time.monotonic()
        problem: Exception | None = None
        try:
            self._peer.wait_to_reach()
            ticket = flight.Ticket(encode_message(self._request))
            self._reader = self._peer.client.do_get(ticket, self._peer.options(None))
            granted = self._read(self._reader)
        except Exception as error:
            problem = error
        if self._cancelled and self._reader is not None:
            self._peer.cancel(self._reader)
        lasted = time.monotonic() - opened >= _LASTED_SECONDS
        is_over = granted and not self._cancelled
        if is_over and lasted:
            # The driver waits for this; whoever reads the journal does not.
            self._peer.lost(self._request.feed)
        if problem is not None and not self._cancelled:
            self._peer.failed(problem)
        if is_over and not lasted:
            time.sleep(self._peer.pause_seconds())
            self._peer.lost(self._request.feed)

    def _read(self, reader: flight.FlightStreamReader) -> bool:
        """Read to the end; False if the subscription was not granted.

        Messages are counted as they are handed on: one may be handed on in pieces.
        """
        frames: list[StreamFrame] = []
        size = seq = messages = 0
        while not self._cancelled:
            while not self._peer.may_read() and not self._cancelled:
                time.sleep(0.01)
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                break
            self._peer.wait_to_hear(None, lambda: self._cancelled)
            metadata = decode_metadata(chunk.app_metadata.to_pybytes())
            if "refused" in metadata:
                refused = _refusal(self._request.feed, metadata)
                self._peer.post_frames(refused)
                return False
            header = _header_of(metadata, chunk.data)
            if metadata.get("seq") != messages:
                raise FeedGap(self._request.stream, messages, metadata.get("seq"))
            left = metadata["left"]
            block = Block(chunk.data) if header.kind.is_data else None
            if block is not None:
                size += block.nbytes
                self._peer.took(block)
            frames.append(
                StreamFrame(header, block, metadata.get("why"), metadata.get("claims", ()))
            )
            messages += left == 0
            if ends_piece(header, left, size, _PIECE_BYTES):
                self._peer.post_frames(FeedFrames(self._request.feed, seq, tuple(frames)))
                self._peer.went_well()
                frames, size, seq = [], 0, seq + 1
        return True


def _refusal(feed: int, metadata: dict[str, Any]) -> SubscribeRefused:
    try:
        return SubscribeRefused(
            feed, NotServed(metadata["refused"]), str(metadata.get("detail", ""))
        )
    except ValueError:
        raise WireError(f"a refusal for an unknown reason came: {metadata}") from None


def _header_of(metadata: dict[str, Any], batch: pa.RecordBatch) -> Header:
    """The header of a frame; WireError if it is not that of the tuples that came with it."""
    header = metadata.get("header")
    if not isinstance(header, Header) or not isinstance(metadata.get("left"), int):
        raise WireError(f"a frame without a header came: {metadata}")
    if not fits(header, batch):
        rows = 0 if batch is None else batch.num_rows
        raise WireError(f"a frame of {rows} tuples came as {header}")
    return header


def explain(error: Exception) -> str:
    """The first line of an error, without what Flight and gRPC add to it."""
    text = str(error).strip().splitlines()
    first = text[0] if text else repr(error)
    for mark in (". gRPC client debug context", ". Client context:", ". Detail:"):
        first = first.partition(mark)[0]
    if "failed to connect to all addresses" in first:
        return f"cannot be reached: {first.rpartition(': ')[2]}"
    if "with message: " in first:
        first = first.partition("with message: ")[2]
    return first
