"""How close one subscriber comes to a bare Flight stream of the same batches.

Both servers run in a process of their own and send the same record batch of 10,000 tuples of 100
bytes so many times; the reader is in this process. Turn about, the median of the ratios.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from benchmarks.streams_log import SCHEMA, TUPLE_BYTES, _frame
from holdfast.blocks import Block
from holdfast.core.events import Event, MessageArrived
from holdfast.core.frame import Header, Kind
from holdfast.core.messages import FeedFrames, Message, StreamFrame, Subscribe
from holdfast.flight.peers import Peers
from holdfast.flight.refused import refused
from holdfast.flight.security import Security
from holdfast.flight.server import PutBatch, StreamServer

FRAME_TUPLES = 10_000


class Bare(flight.FlightServerBase):  # type: ignore[misc]
    """Nothing but Flight."""

    def __init__(self, batches: int) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._batches = batches
        self._batch = _frame(FRAME_TUPLES).batch

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        return flight.GeneratorStream(SCHEMA, (self._batch for _ in range(self._batches)))


class Stream:
    """A process that serves one long stream."""

    name = "server"

    def __init__(self, batches: int) -> None:
        self.server = StreamServer(self, "127.0.0.1", 0, Security())
        self._batches = batches
        self._block = Block(_frame(FRAME_TUPLES).batch)

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"s": SCHEMA}

    def receive(self, sender: str, message: Message) -> Future[Message]:
        if isinstance(message, Subscribe):
            frames = tuple(
                StreamFrame(
                    Header(Kind.STABLE, index * FRAME_TUPLES, FRAME_TUPLES, 0, 1, 1), self._block
                )
                for index in range(self._batches)
            )
            # One message for each frame, as a live stream has.
            for seq, frame in enumerate(frames):
                while not self.server.feeds.deliver(
                    sender, FeedFrames(message.feed, seq, (frame,))
                ):
                    time.sleep(0.001)
        return Future()

    def put(
        self, sender: str, stream: str, options: dict[str, Any], batches: Iterator[PutBatch]
    ) -> None:
        raise refused("this server is only read from")


def serve(kind: str, batches: int) -> None:
    from holdfast.flight import feeds

    feeds.QUEUE_BYTES = feeds.QUEUE_MESSAGES = 1 << 40  # the whole stream is there at once
    server = Bare(batches) if kind == "bare" else Stream(batches).server
    print(server.port, flush=True)
    sys.stdin.read()


def _read_bare(port: int) -> int:
    with flight.FlightClient(f"grpc://127.0.0.1:{port}") as client:
        reader = client.do_get(flight.Ticket(b"{}"))
        rows = 0
        while True:
            try:
                rows += reader.read_chunk().data.num_rows
            except StopIteration:
                return rows


def _read_stream(port: int, batches: int) -> int:
    done = threading.Event()
    rows = 0

    def post(event: Event) -> None:
        nonlocal rows
        if isinstance(event, MessageArrived) and isinstance(event.message, FeedFrames):
            for frame in event.message.frames:
                rows += frame.header.count
            if event.message.seq == batches - 1:
                done.set()

    peers = Peers("reader", {"server": f"grpc://127.0.0.1:{port}"}, Security(), post)
    peers.send("server", Subscribe("s", 1, 0, 0))
    done.wait(120.0)
    peers.close()
    return rows


def measure(batches: int = 400, rounds: int = 15) -> dict[str, Any]:
    """Megabytes a second of one subscriber, and the ratio to a bare stream."""
    servers = {}
    try:
        for kind in ("bare", "stream"):
            servers[kind] = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.streams_flight", kind, str(batches)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        ports = {}
        for kind, server in servers.items():
            assert server.stdout is not None
            ports[kind] = int(server.stdout.readline())
        speeds: dict[str, list[float]] = {"bare": [], "stream": []}
        for _ in range(rounds + 1):
            for kind, found in speeds.items():
                start = time.perf_counter()
                port = ports[kind]
                rows = _read_bare(port) if kind == "bare" else _read_stream(port, batches)
                assert rows == batches * FRAME_TUPLES
                found.append(rows * TUPLE_BYTES / 1e6 / (time.perf_counter() - start))
    finally:
        for server in servers.values():
            server.terminate()
            server.wait(10.0)
    pairs = zip(speeds["stream"][1:], speeds["bare"][1:], strict=True)
    return {
        "flight_mb_s": round(statistics.median(speeds["stream"][1:])),
        "bare_flight_mb_s": round(statistics.median(speeds["bare"][1:])),
        "flight_ratio": round(statistics.median(ours / bare for ours, bare in pairs), 2),
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(sys.argv[1], int(sys.argv[2]))
    else:
        print(json.dumps(measure()))
