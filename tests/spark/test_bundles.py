"""Small runs of a task share a file, which is there for as long as one of them is."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, window
from holdfast.spark import open_runs
from holdfast.spark.bundles import Bundle, members
from holdfast.spark.engine import Engine
from holdfast.spark.open_runs import LargeRuns, OpenRun, SmallRuns, open_run
from holdfast.spark.runs import parse_address, read_run, run_name
from holdfast.spark.version import Version
from tests.spark.support import SECOND, bucket


@pytest.fixture(autouse=True)
def _none_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_runs, "_large", LargeRuns())
    monkeypatch.setattr(open_runs, "_kept", SmallRuns())


def rows_of(count: int, first: int) -> pa.Table:
    slots = np.zeros(count, np.int64)
    text = pa.array([None if at % 3 else f"text {at}" for at in range(count)])
    return pa.table({"slot": slots, "hash": np.arange(first, first + count), "k0": text})


def test_every_run_of_a_bundle_is_read_from_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = Bundle(str(tmp_path), 7)
    tables = [rows_of(count, 10 * count) for count in (1, 100, 3)]
    names = [
        run_name((f"sums#{at}", "windows", at), 0, OpenRun(each).slot, 7)
        for at, each in enumerate(tables)
    ]
    # One that begins in the middle of others, as what a partition's tuples have touched does.
    tables[1] = tables[1].slice(20, 50)
    for name, table in zip(names, tables, strict=True):
        assert bundle.take(name, OpenRun(table), [])
    assert not bundle.take("large", OpenRun(rows_of(50_000, 0)), [])
    bundle.write()
    (path,) = tmp_path.iterdir()
    found = members(str(path))
    assert [name for name, *_ in found] == names
    for (_, address, size), table in zip(found, tables, strict=True):
        assert parse_address(address)[0] == str(path)
        assert read_run(address).equals(table)
        assert 0 < size < path.stat().st_size
        # As it was kept, and as one who has not kept it reads it.
        assert open_run(address).rows.equals(table)
    own = sum(size + open_runs._RUN_BYTES for *_, size in found)
    assert open_runs._kept.bytes == own
    # Read again, each is charged what it is of the file.
    monkeypatch.setattr(open_runs, "_kept", SmallRuns())
    for (_, address, _), table in zip(found, tables, strict=True):
        assert open_run(address).rows.equals(table)
    assert open_runs._kept.bytes == own


def test_a_run_that_is_too_large_is_not_written_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    as_written = OpenRun.stream_bytes

    def stream_bytes(run: OpenRun) -> bytes:
        written.append(len(run))
        return as_written(run)

    monkeypatch.setattr(OpenRun, "stream_bytes", stream_bytes)
    bundle = Bundle(str(tmp_path), 7)
    for rows, fits in ((1_700, True), (7_500, False), (8_000, False)):
        columns = {name: np.arange(rows) for name in ("slot", "hash", *"abcdefg")}
        table = pa.table(columns)
        for run in (OpenRun.of(columns), OpenRun(table), OpenRun(table).part(0, rows)):
            assert bundle.take(f"sums#1~windows~0~0~{rows}~0~0~7", run, []) == fits
    assert written == [1_700] * 3
    assert OpenRun(rows_of(8_000, 0)).part(20, 30).column_bytes < 1_000


def test_a_path_that_only_looks_like_an_address_is_a_path() -> None:
    for path in ("/a/sums#1~windows~0~0~3~0~0~5", "/a#1+2/run", "run"):
        assert parse_address(path) == (path, 0, None)
    assert parse_address("/a#1+2/x~5#64+100") == ("/a#1+2/x~5", 64, 100)


def test_a_bucket_of_many_queries_makes_few_files_and_they_go(spark: SparkSession) -> None:
    network = Network("many", bucket="1 second", partitions=2, spark=spark)
    source = network.source("s", "k string, v double")
    for index in range(6):
        sums = source.groupBy(window(f"{index + 2} seconds"), "k").agg(F.count("*").alias("n"))
        sums.output(f"query_{index}")
    version = Version(Engine(network))

    def files() -> set[Path]:
        return {each for each in version.engine.directory.rglob("*~*") if each.is_file()}

    emitted = 0
    for at in range(20):
        rows = [(at * SECOND + key, f"key {key}", 0.5) for key in range(9)]
        out = version.advance([bucket(version.engine, at * SECOND, (at + 1) * SECOND, s=rows)])
        emitted += sum(sum(table["n"].to_pylist()) for table in out.values())
        gc.collect()
        runs = [run for *_, run in version.snapshot().all_runs()]
        assert files() == {run.path for run in runs}
        if at == 1:
            # A file of each task, of which there may be two, and two buckets so far.
            assert len(runs) > 8 > 4 >= len(files())
    ended = [20 // size * size for size in range(2, 8)]
    assert emitted == 9 * sum(ended)
    runs.clear()
    version.clear()
    gc.collect()
    assert files() == set()


def test_larger_runs_share_a_file_while_little_is_in_it(tmp_path: Path) -> None:
    """What one run that stays keeps of others is little, and a small run finds a place anyway."""
    bundle = Bundle(str(tmp_path), 7)
    rows = pa.table({"slot": np.zeros(20_000, np.int64), "hash": np.arange(20_000)})  # 320 kB
    name = run_name(("sums", "windows", 0), 0, OpenRun(rows).slot, 7)
    taken = [bundle.take(name, OpenRun(rows), []) for _ in range(4)]
    assert taken == [True, True, True, False]
    assert bundle.take(name, OpenRun(rows.slice(0, 5_000)), [])
