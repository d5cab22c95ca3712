"""A run in the background: looked at, waited for, stopped, failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast import Network, call, rate, start
from holdfast.testing import Crash, SourceCrashed, scripted


@pytest.fixture(scope="module")
def network(spark: SparkSession) -> Network:
    made = Network("background", spark=spark)
    made.source("s", "at timestamp, value bigint").output("out")
    return made


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_is_looked_at_and_stopped(network: Network, tmp_path: Path) -> None:
    got: list[pa.Table] = []
    letters = tmp_path / "dead-letters.jsonl"
    handle = start(network, {"s": rate(500)}, {"out": call(got.append)}, dead_letters=letters)
    with handle:
        wait(lambda: not handle.isActive or bool(got and handle.lastProgress))
        assert handle.isActive, handle.exception()
        assert not handle.awaitTermination(0.01)
        summary = handle.stop()
        assert not summary.finished
        assert summary.tuples_out["out"] == sum(table.num_rows for table in got)
    assert not handle.isActive
    assert handle.exception() is None


def test_what_it_fails_with_is_raised_where_it_is_waited_for(
    network: Network, tmp_path: Path
) -> None:
    source = scripted(Crash("as the test wants it"))
    outputs = {"out": call(lambda table: None)}
    with start(network, {"s": source}, outputs, dead_letters=tmp_path / "letters") as handle:
        with pytest.raises(SourceCrashed, match="as the test wants it"):
            handle.awaitTermination(60.0)
        assert isinstance(handle.exception(), SourceCrashed)
