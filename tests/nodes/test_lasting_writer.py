"""A sink fails at any of its writes and works again: what it holds does not show it."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from holdfast import disk
from holdfast.connect.jsonl_sink import write_jsonl
from holdfast.connect.parquet_sink import write_parquet
from holdfast.connect.sink import Sink
from holdfast.connect.upsert_sink import write_sqlite
from holdfast.core.settings import Timing
from holdfast.disk import Fault
from holdfast.flight.peers import call
from holdfast.flight.security import Security
from holdfast.nodes.client_node import ClientNode
from holdfast.nodes.hosted import Place
from holdfast.nodes.lasting_writer import LastingWriter
from holdfast.producer import Producer
from tests.connect.test_sinks import SCHEMA, tuples
from tests.flight.nodes import entry_point, location, numbers

ERRORS = ("ENOSPC", "EIO", "EROFS")
SECONDS = 60.0


def lines(path: Path) -> list[int]:
    return [json.loads(line)["seq"] for line in path.read_text().splitlines()]


def parts(path: Path) -> list[int]:
    found: list[int] = []
    for part in sorted(path.glob("part-*.parquet")):
        found += pq.read_table(part)["seq"].to_pylist()
    return found


def rows(path: Path) -> list[int]:
    with sqlite3.connect(path) as connection:
        return [seq for (seq,) in connection.execute("SELECT seq FROM out ORDER BY seq")]


SINKS: list[tuple[Callable[[Path], Sink], Callable[[Path], list[int]]]] = [
    (write_jsonl, lines),
    (write_parquet, parts),
    (write_sqlite, rows),
]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("make", "held"), SINKS)
def test_a_sink_goes_on_when_the_disk_does(
    tmp_path: Path, make: Callable[[Path], Sink], held: Callable[[Path], list[int]], error: str
) -> None:
    path = tmp_path / "out"
    told: list[str | None] = []
    sink = make(path)
    writer = LastingWriter(lambda position: sink.open("out", SCHEMA, position), None, told.append)
    writer.write(tuples(0, 3))
    position = writer.flush()
    with disk.failing(Fault.named(error, "*/out*")):
        writer.write(tuples(3, 20_000))
        for _ in range(3):
            assert writer.flush() is None
            assert writer.fails
            writer.write(tuples(20_003, 1))
        assert "It is tried again" in str(told[-1])
    assert writer.flush() not in (None, position or None)
    assert told[-1] is None
    writer.write(tuples(20_003, 2))
    writer.flush()
    writer.close()
    # Whoever wrote the same tuple again meant it, except where a key makes it one.
    again = [] if make is write_sqlite else [20_003] * 3
    assert held(path) == [*range(20_003), *again, 20_003, 20_004]


def wait(until: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not until():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.mark.parametrize("where", ["*/out.jsonl", "*position.json*"])
def test_a_client_goes_on_when_the_disk_does(tmp_path: Path, where: str) -> None:
    broken: list[BaseException] = []
    path = tmp_path / "out.jsonl"
    with (
        entry_point(tmp_path / "entry") as entry,
        Producer("load", location(entry), name="p") as producer,
    ):
        node = ClientNode(
            "reader", "load", entry.schemas["load"], write_jsonl(path), tmp_path / "reader",
            {"entry-load": location(entry)}, Place("127.0.0.1", 0, {}, Security()), Timing(),
            broken.append,
        )  # fmt: skip
        node.start()
        try:
            assert node._listener is not None
            place = f"grpc://127.0.0.1:{node._listener.port}"
            producer.send(numbers(0, 10))
            wait(lambda: node._client.committed == 10, "the first tuples")
            with disk.failing(Fault.named("ENOSPC", where)):
                producer.send(numbers(10, 10))
                said = lambda: call(place, Security(), "x", "status")["problems"]  # noqa: E731
                wait(said, "nothing is said")
                assert node.health()
                assert node._client.committed == 10
                producer.send(numbers(20, 10))
                producer.flush()
            wait(lambda: node._client.committed == 30, "the rest")
            assert node.status()["problems"] == []
            assert lines(path) == list(range(30))
        finally:
            node.stop()
    assert not broken
