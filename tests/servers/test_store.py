"""Parquet in stores of objects: every tuple once, with the store and the writer killed.

One store answers as S3 does, one as Google's, one as Azure's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest

from benchmarks.java_servers import StoreServer
from benchmarks.servers import ObjectStore
from benchmarks.store_servers import AzureStore, GoogleStore
from holdfast.connect.parquet_sink import write_parquet
from holdfast.connect.sink import Position, Writer
from holdfast.durable import read_document
from tests.connect.test_sinks import SCHEMA, tuples
from tests.servers.support import SECONDS, topic_name

pytestmark = [pytest.mark.thorough]

ROOT = Path(__file__).parents[2]
NETWORK = """
from holdfast import Network

network = Network("numbers", bucket="1 second")
load = network.source("load", "at timestamp, number bigint", stime="at")
load.filter("number >= 0").output("numbers")
"""
# One life of a writer: what a client does, over and over, until it is killed.
LIFE = """
import random, sys
from pathlib import Path
from holdfast.connect.parquet_sink import write_parquet
from holdfast.durable import read_document, write_document
from tests.connect.test_sinks import SCHEMA, tuples

address, directory, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
path, chance = directory / "position.json", random.Random(seed)
position = read_document(path)["position"] if path.exists() else None
sink = write_parquet(address).known_as("writer", directory / "sink.json")
writer = sink.open("busy", SCHEMA, position)
number = (position or {"next_id": 0})["next_id"]
print("begun", flush=True)
while True:
    count = chance.randint(1, 50)
    writer.write(tuples(number, count))
    number += count
    if writer.ready:
        write_document(path, {"position": writer.flush()})
"""


@pytest.fixture(scope="module", params=[StoreServer, GoogleStore, AzureStore])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ObjectStore]:
    with request.param(tmp_path_factory.mktemp("store")) as started:
        yield started


def parts(store: ObjectStore, path: str) -> list[pa.Table]:
    system, bucket = store.system()
    found = system.get_file_info(fs.FileSelector(f"{bucket}/{path}", allow_not_found=True))
    return [
        pq.read_table(each.path, filesystem=system)
        for each in sorted(found, key=lambda each: each.base_name)
        if each.type == fs.FileType.File
    ]


def ids(store: ObjectStore, path: str) -> list[int]:
    tables = parts(store, path)
    return pa.concat_tables(tables)["seq"].to_pylist() if tables else []


def flushed(writer: Writer) -> Position:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return writer.flush()
        except OSError:
            if time.monotonic() > deadline:
                raise


def test_a_writer_that_is_killed_again_and_again(store: ObjectStore, tmp_path: Path) -> None:
    path, chance = topic_name("killed"), Random(1)
    found: list[int] = []
    life = 0
    # On a machine that is busy lives are short, and there are more of them.
    while life < 12 or len(found) < 500:
        assert life < 100, "the lives were too short to say anything"
        arguments = [store.address(path), str(tmp_path), str(life)]
        process = subprocess.Popen(
            [sys.executable, "-c", LIFE, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        time.sleep(chance.uniform(0.05, 0.6))
        process.send_signal(signal.SIGKILL)
        process.wait(30.0)
        process.stdout.close()
        # Whoever reads meanwhile finds whole parts only, and each tuple once.
        found = ids(store, path)
        assert found == list(range(len(found)))
        life += 1
    # The last life does what the others left, and goes on.
    saved = tmp_path / "position.json"
    position = read_document(saved)["position"] if saved.exists() else None
    sink = write_parquet(store.address(path)).known_as("writer", tmp_path / "sink.json")
    writer = sink.open("busy", SCHEMA, position)
    first = int((position or {"next_id": 0})["next_id"])
    writer.write(tuples(first, 100))
    assert writer.ready
    end = flushed(writer)["next_id"]
    assert end == first + 100
    assert ids(store, path) == list(range(end))


def test_a_store_that_was_killed(store: ObjectStore, tmp_path: Path) -> None:
    path = topic_name("away")

    def opened(position: Position | None) -> Writer:
        sink = write_parquet(store.address(path)).known_as("me", tmp_path / "sink.json")
        return sink.open("busy", SCHEMA, position)

    writer = opened(None)
    writer.write(tuples(0, 5))
    position = flushed(writer)
    writer.write(tuples(5, 5))
    store.kill()
    with pytest.raises(OSError, match=r"Error|UNAVAILABLE"):
        writer.flush()
    store.start()
    again = opened(position)
    again.write(tuples(5, 10))
    assert flushed(again)["next_id"] == 15
    assert ids(store, path) == list(range(15))
    assert [table.num_rows for table in parts(store, path)] == [5, 5, 5]


def test_holdfast_run_goes_on_after_a_kill(store: ObjectStore, tmp_path: Path) -> None:
    path, count = topic_name("run"), 10_000
    (tmp_path / "network.py").write_text(NETWORK)
    rows = [f"2024-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z,{n}" for n in range(count)]
    (tmp_path / "load.csv").write_text("\n".join(["at,number", *rows, ""]))

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "holdfast.cli", "run", "network.py"),
                *("--spark-master", "local[1]", "--advance-tuples", "50"),
                *("--source", "load=csv:load.csv,block_bytes=2000", "--state", "state"),
                *("--output", f"numbers=parquet:{store.address(path)}"),
                *("--checkpoint-interval", "200 ms"),
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    first = start()
    deadline = time.monotonic() + SECONDS
    while len(parts(store, path)) < 3:
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert len(ids(store, path)) < count, "it was killed too late to say anything"
    second = start()
    out, errors = second.communicate(timeout=SECONDS)
    assert second.returncode == 0, (out, errors)
    assert ids(store, path) == list(range(count))
    numbers = pa.concat_tables(parts(store, path))["number"].to_pylist()
    assert numbers == list(range(count))
    assert "not-a-secret" not in out + errors


def test_the_secret_of_an_address_is_not_shown(store: ObjectStore) -> None:
    sink: Any = write_parquet(store.address("x"))
    for shown in (str(sink), repr(sink), sink.identity):
        assert "not-a-secret" not in shown
