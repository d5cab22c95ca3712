"""The Flight server of a process: its streams, its answers, its control.

    DoGet     subscribe: the ticket is a Subscribe message, the stream its feed
    DoAction  "heartbeat" waits for the driver's reply; "message" hands the driver anything
              else; "status" and whatever the process adds are control
    DoPut     tuples from a producer, each batch acknowledged when it is durable; or a
              checkpoint from the other copy of a fragment (packed_codec.py)

Calls run in threads of their own. They talk to the driver only through ``Process``.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.flight as flight

from holdfast.core.machine import PeerError
from holdfast.core.messages import (
    CopyReply,
    CopyRequest,
    HeartbeatReply,
    HeartbeatRequest,
    Message,
    Subscribe,
    Unsubscribe,
)
from holdfast.errors import InputError
from holdfast.flight.feeds import Count, Feed, Feeds
from holdfast.flight.gate import Gatekeeper
from holdfast.flight.links import LinkCut, Links
from holdfast.flight.refusals import Refusals, Tell
from holdfast.flight.refused import refused
from holdfast.flight.roles import Role
from holdfast.flight.security import Security
from holdfast.flight.wire import CLOSING, WireError, decode_message, encode_message
from holdfast.intact import check_intact, check_size
from holdfast.ports import check_free
from holdfast.slots import wrong_part

# How long the driver may take to answer a heartbeat; the asker has given up long before.
ANSWER_SECONDS = 10.0

_READERS = (Role.READ, Role.REPLICATE)
# What each action needs; the others are for operators.
_ROLES: Mapping[str, tuple[Role, ...]] = {
    "heartbeat": _READERS,
    "message": _READERS,
    "producer": (Role.PRODUCE,),
    "status": tuple(Role),
}

Control = Callable[[dict[str, Any]], dict[str, Any]]
Answer = Callable[[bytes], None]


class Process(Protocol):
    """What the server needs to know of the process it serves."""

    @property
    def name(self) -> str: ...

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        """The streams served here."""

    def receive(self, sender: str, message: Message) -> Future[Message]:
        """Hand a message to the driver; the future is its direct answer, if it gives one."""

    def put(
        self, sender: str, stream: str, options: dict[str, Any], batches: Iterator[PutBatch]
    ) -> None:
        """Take tuples from a producer, or a checkpoint from the other copy."""


class PutBatch:
    """A batch of a producer, and the way to acknowledge it."""

    def __init__(self, batch: pa.RecordBatch, options: dict[str, Any], answer: Answer) -> None:
        self.batch = batch
        self.options = options
        self._answer = answer

    def acknowledge(self, answer: dict[str, Any]) -> None:
        self._answer(json.dumps(answer).encode())


class StreamServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves one process."""

    def __init__(
        self,
        process: Process,
        host: str,
        port: int,
        security: Security,
        controls: Mapping[str, Control] | None = None,
        links: Links | None = None,
        on_refused: Tell = lambda caller, address, reason, calls: None,
        count: Count = lambda stream, consumer, kind, tuples, size: None,
    ) -> None:
        """``on_refused`` is told of calls that are not let in, seldom (refusals.py).

        ``count`` is told of tuples that go out (feeds.py).
        """
        self._links = links or Links()
        self.refusals = Refusals(on_refused)
        self._gatekeeper = Gatekeeper(process.name, security, self.refusals)
        security = security.current()
        security.check_binding(host)
        self._process = process
        self._controls = dict(controls or {})
        self.feeds = Feeds(process.name, self._links.arrival, count, self._links.is_lost)
        self._closing = False
        # How those who are in the middle of a DoPut are told to end it.
        self._putting: set[Answer] = set()
        # Flight itself says only that it did not start properly.
        check_free(host, port)
        super().__init__(
            security.location(host, port),
            middleware={"caller": self._gatekeeper},
            **security.server_options(),
        )

    def close(self, within_s: float = 2.0) -> None:
        """End the calls under way, then the server; it listens no more when this returns.

        Nothing but the caller's end ends a call that brings tuples, so callers are told to end
        theirs. Flight waits for all calls without end, and again when the interpreter ends; those
        of callers who do not listen are left behind, and whatever they bring is refused.
        """
        self._closing = True
        self.feeds.close()
        for tell in list(self._putting):
            with contextlib.suppress(Exception):  # it has ended meanwhile
                tell(json.dumps({CLOSING: True}).encode())
        closing = threading.Thread(target=self.shutdown, name="closing", daemon=True)
        closing.start()
        closing.join(within_s)

    # -- links that are cut -------------------------------------------------------------

    def _admit(
        self,
        context: flight.ServerCallContext,
        what: str,
        *roles: Role,
        within_s: float | None = ANSWER_SECONDS,
    ) -> str:
        """Who calls, with one of these roles; on a link that is cut the call waits, until the
        caller gives it up."""
        sender = self._gatekeeper.admit(context, what, *roles)
        if not self._links.wait_to_hear(sender, within_s, lambda: self._given_up(context)):
            raise flight.FlightUnavailableError(str(LinkCut(self._process.name)))
        return sender

    def _given_up(self, context: flight.ServerCallContext) -> bool:
        """Whether nobody waits for a call any more."""
        return self._closing or context.is_cancelled()

    def _let_out(
        self, context: flight.ServerCallContext, sender: str, within_s: float | None
    ) -> None:
        """Hold an answer back while the link is cut."""
        if not self._links.wait_to_reach(sender, within_s, lambda: self._given_up(context)):
            raise flight.FlightUnavailableError(str(LinkCut(self._process.name)))

    # -- subscribing --------------------------------------------------------------------

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        sender = self._admit(context, "to subscribe", *_READERS)
        message = _decoded(sender, ticket.ticket)
        if not isinstance(message, Subscribe):
            raise flight.FlightServerError(f"a ticket is a Subscribe message, got {message!r}")
        schema = self._schema(message.stream)
        wrong = None if message.part is None else wrong_part(message.part, schema)
        if wrong is not None:
            raise refused(f"{self._process.name} cannot divide {message.stream!r} so: {wrong}")
        feed = self.feeds.open(sender, message.feed, schema, message.part, message.stream)
        self._process.receive(sender, message)
        return flight.GeneratorStream(feed.schema, self._serve(context, sender, feed))

    def _serve(
        self, context: flight.ServerCallContext, sender: str, feed: Feed
    ) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        try:
            for batch in feed.batches(context):
                self._let_out(context, sender, None)
                yield batch
            refusal = feed.refusal()
            if refusal is not None:
                self._let_out(context, sender, None)
                self._links.travel(sender)
                yield refusal
        finally:
            self.feeds.close_feed(feed)
            self._process.receive(sender, Unsubscribe(feed.id))

    def _schema(self, stream: str) -> pa.Schema:
        if stream not in self._process.schemas:
            raise refused(
                f"{self._process.name} serves no stream {stream!r}; it serves "
                f"{sorted(self._process.schemas)}"
            )
        return self._process.schemas[stream]

    # -- heartbeats, messages, control --------------------------------------------------

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        roles = _ROLES.get(action.type, (Role.OPERATE,))
        sender = self._admit(context, repr(action.type), *roles)
        answer = self._act(sender, action)
        self._let_out(context, sender, ANSWER_SECONDS)
        self._links.travel(sender, sum(map(len, answer)))
        return answer

    def _act(self, sender: str, action: flight.Action) -> list[bytes]:
        body = action.body.to_pybytes()
        if action.type == "heartbeat":
            return [self._heartbeat(sender, _decoded(sender, body))]
        if action.type == "message":
            message = _decoded(sender, body)
            if isinstance(message, Unsubscribe):
                self.feeds.unsubscribe(sender, message.feed)
            answer = self._process.receive(sender, message)
            if answer.done() and answer.exception() is not None:
                raise flight.FlightServerError(str(answer.exception()))
            return []
        if action.type in self._controls:
            options = _options(sender, body)
            if action.type == "producer":
                _check_own_name(sender, options)
            return [json.dumps(self._controls[action.type](options)).encode()]
        raise refused(
            f"{self._process.name} knows no action {action.type!r}; it knows heartbeat, message "
            f"and {sorted(self._controls)}"
        )

    def _heartbeat(self, sender: str, message: Message) -> bytes:
        if not isinstance(message, HeartbeatRequest | CopyRequest):
            raise flight.FlightServerError(f"a heartbeat is a HeartbeatRequest, got {message!r}")
        try:
            reply = self._process.receive(sender, message).result(ANSWER_SECONDS)
        except FutureTimeout:
            raise flight.FlightTimedOutError(f"{self._process.name} is busy") from None
        except PeerError as error:
            raise flight.FlightServerError(str(error)) from None
        assert isinstance(reply, HeartbeatReply | CopyReply)
        return encode_message(reply)

    # -- producers ----------------------------------------------------------------------

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        options = _options("a producer", descriptor.command or b"")
        is_checkpoint = bool(options.get("checkpoint"))
        what, role = (
            ("a checkpoint", Role.REPLICATE) if is_checkpoint else ("to produce", Role.PRODUCE)
        )
        sender = self._admit(context, what, role)
        stream = str(options.get("stream", ""))
        if not is_checkpoint:
            _check_own_name(sender, options)
            self._schema(stream)

        turn = threading.Lock()

        def tell(data: bytes) -> None:
            # Flight's writer is gone when the call is, and nothing keeps one from writing to it.
            with turn:
                if tell in self._putting:
                    writer.write(pa.py_buffer(data))

        def answer(data: bytes) -> None:
            self._let_out(context, sender, None)
            tell(data)

        def batches() -> Iterator[PutBatch]:
            for chunk in reader:
                self._admit(context, what, role, within_s=None)
                metadata = chunk.app_metadata
                said = _options(sender, b"" if metadata is None else metadata.to_pybytes())
                self._look_at(sender, chunk.data, bounded=not is_checkpoint)
                yield PutBatch(chunk.data, said, answer)

        self._putting.add(tell)
        try:
            if self._closing:
                raise flight.FlightUnavailableError(f"{self._process.name} is stopping")
            self._process.put(sender, stream, options, batches())
        finally:
            with turn:
                self._putting.discard(tell)

    def _look_at(self, sender: str, batch: pa.RecordBatch, bounded: bool) -> None:
        """Refuse what nobody may read, before anybody does."""
        who = f"{self._process.name} refuses a batch of {sender!r}"
        try:
            if bounded:
                check_size(batch, who)
            check_intact(batch, who)
        except InputError as error:
            raise refused(str(error)) from None


def _decoded(sender: str, data: bytes) -> Message:
    try:
        return decode_message(data)
    except WireError as error:
        raise flight.FlightServerError(f"{sender}: {error}") from None


def _options(sender: str, data: bytes) -> dict[str, Any]:
    """The JSON object of a call."""
    try:
        found = json.loads(data) if data else {}
    except (ValueError, RecursionError) as error:
        raise flight.FlightServerError(f"{sender}: not JSON: {error!r}") from None
    if not isinstance(found, dict):
        raise flight.FlightServerError(f"{sender}: a JSON object is needed, got {type(found)}")
    return found


def _check_own_name(sender: str, options: dict[str, Any]) -> None:
    """Producers speak for themselves."""
    if options.get("producer") != sender:
        raise refused(
            f"{sender} takes no other producer's place: it named {options.get('producer')!r}"
        )
