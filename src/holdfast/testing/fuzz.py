"""Random and mutated messages from unknown and lying senders, against a process that listens.

    fuzz = Fuzz(location, callers, seed=1)
    fuzz.run(1_000)
    fuzz.outcomes        # Counter: "answered", "refused", ...

Whatever is sent, the process must answer with an error, or, if it was a message after all, as
ever; that it is still there is for the caller to look at. One seed is one run.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.flight as flight

from holdfast.core.messages import (
    CheckpointTaken,
    CopyReport,
    CopyRequest,
    CopyState,
    HeartbeatReply,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    Message,
    NotServed,
    PostponeAnswer,
    PostponeRelease,
    PostponeReply,
    PostponeRequest,
    StateRequest,
    StreamReport,
    StreamState,
    Subscribe,
    SubscribeRefused,
    Unsubscribe,
)
from holdfast.flight.peers import connect
from holdfast.flight.roles import Role
from holdfast.flight.security import Security
from holdfast.flight.wire import encode_message

_CALL_SECONDS = 20.0
ACTIONS = (
    *("heartbeat", "message", "status", "producer", "links", "clock"),
    *("ports", "deploy", "processes", "signal", "restart", "logs", "disturb", "stop"),
    *("", "shutdown", "Heartbeat", "x" * 300),
)
_REPORT = CopyReport(3, CopyState.PRIMARY, 10, 20, True)


@dataclass(frozen=True)
class Caller:
    """Somebody who calls, under a name that may not be its own."""

    name: str
    security: Security
    role: Role = Role.READ


class Fuzz:
    """Says random things to one process."""

    def __init__(self, location: str, callers: Sequence[Caller], streams: Sequence[str], seed: int):
        """``streams`` are names the process may know, so that some of it is nearly right."""
        self._location = location
        self._callers = callers
        self._streams = [*streams, "", "nothing", "../up"]
        self._dice = random.Random(seed)
        self.outcomes: Counter[str] = Counter()

    def run(self, count: int) -> None:
        """Send so many messages."""
        calls: list[tuple[int, Callable[[flight.FlightClient, flight.FlightCallOptions], None]]] = [
            (60, self._act),
            (15, self._subscribe),
            (15, self._put),
            (8, self._other),
            (2, self._noise),
        ]
        with connect(self._location, self._callers[0].security) as client:
            for _ in range(count):
                call = self._dice.choices([each for _, each in calls], [n for n, _ in calls])[0]
                caller = self._dice.choice(self._callers)
                try:
                    headers = self._headers(caller)
                    call(client, flight.FlightCallOptions(timeout=_CALL_SECONDS, headers=headers))
                    self.outcomes["answered"] += 1
                except flight.FlightTimedOutError:
                    self.outcomes["timed out"] += 1
                except (flight.FlightError, pa.ArrowException, OSError, StopIteration):
                    self.outcomes["refused"] += 1

    def _headers(self, caller: Caller) -> list[tuple[bytes, bytes]]:
        headers = caller.security.headers(caller.name, caller.role)
        if self._dice.random() < 0.05:
            key, value = self._dice.choice(headers)
            headers = [each for each in headers if each[0] != key]
            headers.append((key, value[::-1] if self._dice.random() < 0.5 else b"x" * 5_000))
        return headers

    # -- calls --------------------------------------------------------------------------

    def _act(self, client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
        likely = ("heartbeat", "message") if self._dice.random() < 0.7 else ACTIONS
        action = flight.Action(self._dice.choice(likely), self._body())
        list(client.do_action(action, options))

    def _subscribe(self, client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
        body = self._body()
        if self._dice.random() < 0.5:
            stream, number = self._dice.choice(self._streams), self._number
            message = Subscribe(stream, number(), number(), number())
            body = encode_message(message)
        reader = client.do_get(flight.Ticket(body), options)
        reader.cancel()

    def _put(self, client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
        said = {
            "stream": self._dice.choice(self._streams),
            "producer": self._dice.choice(self._callers).name,
            "epoch": self._number(),
        }
        if self._dice.random() < 0.3:
            self._ship(client, options)
            return
        command = self._bytes() if self._dice.random() < 0.2 else self._mutated(said)
        batch = self._batch()
        descriptor = flight.FlightDescriptor.for_command(command)
        if self._dice.random() < 0.1:
            descriptor = flight.FlightDescriptor.for_path("a", "b")
        writer, reader = client.do_put(descriptor, batch.schema, options)
        with contextlib.suppress(flight.FlightError, pa.ArrowException):
            for _ in range(self._dice.randrange(3)):
                numbered = {"sequence": self._number(), "tuples": self._number()}
                writer.write_with_metadata(batch, self._mutated(numbered))
            writer.done_writing()
            reader.read()
        writer.close()

    def _ship(self, client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
        """A checkpoint that nobody made."""
        dice, number = self._dice, self._number
        stream = dice.choice(self._streams)
        about = {
            "number": number(),
            "term": dice.randrange(7),
            "base": dice.choice((None, number())),
            "wanted": dice.random() < 0.5,
            "record": {
                **{"boundary": number(), "marker": number(), "extent": 0},
                **{"inputs": [[stream, number()]], "outputs": [[stream, number()]]},
            },
            "queues": [
                {"stream": stream, "first_id": number(), "headers": [[4, 0, 0, 0, number(), 0]]}
            ],
            "log": None,
            "states": [],
        }
        descriptor = flight.FlightDescriptor.for_command(b'{"checkpoint": true}')
        batch = dice.choice((_NOTHING, self._batch()))
        writer, reader = client.do_put(descriptor, batch.schema, options)
        with contextlib.suppress(flight.FlightError, pa.ArrowException):
            writer.write_with_metadata(batch, self._mutated(about))
            writer.done_writing()
            reader.read()
        writer.close()

    def _other(self, client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
        """What Flight offers and no process here does."""
        descriptor = flight.FlightDescriptor.for_command(self._bytes())
        match self._dice.randrange(5):
            case 0:
                list(client.list_flights(self._bytes(), options))
            case 1:
                client.get_flight_info(descriptor, options)
            case 2:
                client.get_schema(descriptor, options)
            case 3:
                client.list_actions(options)
            case _:
                writer, reader = client.do_exchange(descriptor, options)
                with writer:
                    writer.begin(self._batch().schema)
                    writer.done_writing()
                    reader.read_chunk()

    def _noise(self, client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
        """Bytes that are no call at all."""
        where = urlsplit(self._location)
        with socket.create_connection((where.hostname, where.port), timeout=5.0) as connection:
            if self._dice.random() < 0.5:
                connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            connection.sendall(self._bytes(2_000))

    # -- what is sent -------------------------------------------------------------------

    def _body(self) -> bytes:
        pick = self._dice.random()
        if pick < 0.1:
            return self._bytes()
        if pick < 0.15:
            return b"[" * self._dice.randrange(20_000)
        return self._mutated(json.loads(encode_message(self._message())))

    def _message(self) -> Message:
        number, stream = self._number, self._dice.choice(self._streams)
        return self._dice.choice(
            (
                HeartbeatRequest((stream,), ((stream, number()),), (number(),), number()),
                HeartbeatReply((StreamReport(stream, StreamState.STABLE, number(), number()),), ()),
                Subscribe(stream, number(), number(), number()),
                SubscribeRefused(number(), random.choice(list(NotServed)), "below 7"),
                Unsubscribe(number()),
                PostponeRequest(number()),
                PostponeReply(number(), PostponeAnswer.GRANTED),
                PostponeRelease(number()),
                CopyRequest(replace(_REPORT, term=self._dice.randrange(7), holds=number())),
                StateRequest(number()),
                JoinRequest(number(), number()),
                JoinReply(number(), number(), comes=True),
                CheckpointTaken(number()),
            )
        )

    def _mutated(self, found: Any) -> bytes:
        """JSON with up to three things wrong in it; sometimes with none."""
        for _ in range(self._dice.randrange(4)):
            found = self._change(found)
        text = json.dumps(found).encode()
        if self._dice.random() < 0.05:
            return text[: self._dice.randrange(len(text) + 1)]
        return text

    def _change(self, found: Any) -> Any:
        if isinstance(found, dict) and found and self._dice.random() < 0.9:
            key = self._dice.choice(list(found))
            if self._dice.random() < 0.15:
                return {each: value for each, value in found.items() if each != key}
            return {**found, key: self._change(found[key])}
        if isinstance(found, list) and found and self._dice.random() < 0.7:
            index = self._dice.randrange(len(found))
            return [*found[:index], self._change(found[index]), *found[index + 1 :]]
        return self._dice.choice(
            (
                *(None, True, "", "x" * 2_000, "\x00", "../../up", [], {}, [[]], 1.5),
                *(float("nan"), float("inf"), self._number(), [self._number()] * 50),
            )
        )

    def _number(self) -> int:
        return self._dice.choice((0, 1, -1, 7, 1 << 31, -(1 << 31), 1 << 63, 1 << 70, -(1 << 70)))

    def _bytes(self, most: int = 300) -> bytes:
        return self._dice.randbytes(self._dice.randrange(most))

    def _batch(self) -> pa.RecordBatch:
        """Columns that may be the stream's, or have values where there are none."""
        return self._dice.choice(_BATCHES)


def _batches() -> Iterator[pa.RecordBatch]:
    numbers = pa.array([1, 2, 3])
    yield pa.record_batch({"number": numbers, "text": ["a", "b", None]})
    yield pa.record_batch({"text": ["a"], "number": pa.array([1], pa.int32())})
    yield pa.record_batch({"data": pa.array([b"no table"], pa.large_binary())})
    yield pa.record_batch({"number": pa.array([], pa.int64()), "text": pa.array([], pa.string())})
    yield pa.record_batch({}, schema=pa.schema([]))
    # Text that begins after its end, far outside what was sent.
    offsets = pa.py_buffer(pa.array([0, 1 << 30, -7, 3], pa.int32()).buffers()[1])
    lying = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abc")])
    yield pa.record_batch({"number": numbers, "text": lying})


_BATCHES = tuple(_batches())
# The first batch of a checkpoint, which carries only metadata.
_NOTHING = pa.record_batch({"data": pa.array([], pa.large_binary())})
