"""Entry points that read a source themselves: every row once, whatever restarts."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from holdfast.connect.csv_source import read_csv
from holdfast.connect.generator_source import rate
from holdfast.connect.socket_source import read_socket
from holdfast.connect.source import Source
from holdfast.core.entry import EntrySettings
from holdfast.flight.security import Security
from holdfast.log import DiskFull
from holdfast.nodes.entry_node import EntryNode
from holdfast.nodes.hosted import Place
from holdfast.operators import SourceOperator
from holdfast.producer import Producer, ProducerError
from holdfast.spark.engine import input_schema
from holdfast.testing.undisturbed import logged_tuples
from tests.flight.nodes import location

COLUMNS = StructType([StructField("at", TimestampType()), StructField("value", LongType())])
LOAD = SourceOperator("load", "source 'load'", (), COLUMNS, "main", "at", ())
BUCKET_US = 200_000


def fail(error: BaseException) -> None:
    raise AssertionError("a node broke") from error


def started(
    directory: Path, source: Source | None, interval_us: int = 20_000, before: bool = True
) -> EntryNode:
    node = EntryNode(
        EntrySettings("entry-load", "load", ("main-1",), boundary_interval_us=interval_us),
        LOAD.declaration,
        input_schema(LOAD),
        source,
        BUCKET_US,
        directory,
        Place("127.0.0.1", 0, {}, Security()),
        fail,
    )
    if before:
        node.start()
    return node


def wait(until: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_file_is_read_on_where_it_stood(tmp_path: Path) -> None:
    file = tmp_path / "load.csv"
    lines = [
        f"2026-01-01T00:{n // 600:02}:{n // 10 % 60:02}.{n % 10}00000Z,{n}" for n in range(900)
    ]
    lines[450] = "never,450"
    file.write_text("at,value\n" + "\n".join(lines) + "\n")
    source = read_csv(file, block_bytes=500, lateness="1 second")
    node = started(tmp_path / "entry", source)
    wait(lambda: node.entry.served.next_id > 100)
    node.stop()
    node = started(tmp_path / "entry", source)
    wait(lambda: node.status()["ended"] and node.entry.served.next_id == 899)
    # Nothing can be late any more, so windows close: the boundary goes on with the clock.
    ended = time.time_ns() // 1000
    wait(lambda: node.entry.served.boundary > ended)
    node.stop()
    logged = logged_tuples(tmp_path / "entry" / "streams" / "load")
    assert logged["value"].to_pylist() == [n for n in range(900) if n != 450]
    assert logged["stime"].to_pylist() == logged["at"].to_pylist()
    letters = (tmp_path / "entry" / "dead-letters.jsonl").read_text()
    assert '"never"' in letters
    # Rows that come after that are too late, and neither lost nor in the way.
    with file.open("a") as more:
        more.write("2026-01-01T00:09:00.000000Z,900\n")
    node = started(tmp_path / "entry", source)
    wait(lambda: node.status()["ended"] and node.status()["dead_letters"] == 2)
    assert node.entry.served.next_id == 899
    node.stop()


def test_a_source_promises_its_own_time_until_it_ends(tmp_path: Path) -> None:
    hour_us = 3_600_000_000
    now = time.time_ns() // 1000
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        source = read_socket("127.0.0.1", port, lateness="1 second", future_limit="off")
        node = started(tmp_path / "entry", source)
        connection, _ = listening.accept()
        with connection:
            for later in (0, 10 * hour_us):
                at = datetime.fromtimestamp((now + later) / 1e6, UTC).isoformat()
                connection.sendall(f'{{"at": "{at}", "value": 1}}\n'.encode())
                wait(lambda: node.entry.served.boundary > now + later - 2_000_000)  # noqa: B023
            # The newest tuple time less the lateness, down to a bucket.
            newest = (now + 10 * hour_us) // 1000 * 1000
            assert abs(node.entry.served.boundary - (newest - 1_000_000)) <= BUCKET_US + 1_000
    node.stop()


def test_tuples_that_a_full_disk_held_up_are_not_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be written was promised to nobody."""
    file = tmp_path / "load.csv"
    stamps = [f"2026-01-01T00:00:{n // 10:02}.{n % 10}00000Z,{n}" for n in range(600)]
    file.write_text("at,value\n" + "\n".join(stamps) + "\n")
    node = started(tmp_path / "entry", read_csv(file, block_bytes=500), before=False)
    works, failures = node.store.logs["load"].append, list[object]()

    def full(frames: object) -> object:
        if len(failures) < 5:
            failures.append(frames)
            raise DiskFull("no room")
        return works(frames)  # type: ignore[arg-type]

    monkeypatch.setattr(node.store.logs["load"], "append", full)
    node.start()
    wait(lambda: node.status()["ended"] and node.entry.served.next_id == 600)
    node.stop()
    assert len(failures) == 5
    assert node.status()["dead_letters"] == 0


def test_a_rate_goes_on_with_the_next_number(tmp_path: Path) -> None:
    source = rate(2_000)
    for least in (200, 400, 600):
        node = started(tmp_path / "entry", source)
        wait(lambda: node.entry.served.next_id >= least)  # noqa: B023
        node.stop()
    values = logged_tuples(tmp_path / "entry" / "streams" / "load")["value"].to_pylist()
    assert values == list(range(len(values)))
    assert len(values) >= 600


@pytest.mark.timeout(60)
def test_a_boundary_never_overtakes_the_batch_it_comes_from(tmp_path: Path) -> None:
    """Each batch reaches into the next bucket, and a boundary is often due when it comes."""
    node = started(tmp_path / "entry", None, interval_us=3_000)
    try:
        with Producer("load", location(node), name="p", batch_tuples=2) as producer:
            for number in range(300):
                at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=200 * number)
                producer.send(
                    [
                        {"at": at - timedelta(milliseconds=10), "value": number},
                        {"at": at + timedelta(milliseconds=10), "value": number},
                    ]
                )
                time.sleep(0.003)
            assert producer.flush(10.0) == 600
    finally:
        node.stop()


def test_producers_are_sent_away_from_a_source_that_is_read(tmp_path: Path) -> None:
    node = started(tmp_path / "entry", rate(100))
    try:
        with pytest.raises(ProducerError, match="takes none from producers"):
            Producer("load", location(node), name="p")
    finally:
        node.stop()
