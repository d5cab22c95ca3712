"""Snapshots, forks, restores, packing and clearing, over every kind of state at once."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, StateError, count_window, window
from holdfast.spark import packing
from holdfast.spark.column_job import ColumnJob
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.state import EMPTY
from holdfast.spark.undoing import give_up, rebuild
from holdfast.spark.version import Version
from holdfast.testing import run, same_bytes, split
from tests.spark.networks import every_kind_of_state, every_third, some_tables
from tests.spark.support import PLAIN, SECOND, bucket

EDGES = [0, 700_000, 1_500_000, 2_600_000, 3_000_000, 4_400_000, 9 * SECOND]


@pytest.fixture(scope="module")
def engine(spark: SparkSession) -> Engine:
    return Engine(every_kind_of_state(spark))


@pytest.fixture(scope="module")
def buckets(engine: Engine) -> list[Bucket]:
    return split(some_tables(engine, 31, 150), EDGES)


@pytest.fixture(scope="module")
def later(engine: Engine, buckets: list[Bucket]) -> Mapping[str, pa.Table]:
    """The outputs of all buckets but the first three."""
    version = Version(engine)
    run(version, buckets[:3])
    return run(version, buckets[3:])


def run_files(engine: Engine) -> list[Path]:
    return [path for path in engine.directory.rglob("*~*") if path.is_file()]


def test_fork_diverge_restore(
    engine: Engine, buckets: list[Bucket], later: Mapping[str, pa.Table]
) -> None:
    version = Version(engine)
    run(version, buckets[:3])
    kept = version.snapshot()
    fork = Version(engine, kept)
    # The fork misses an input and goes on with half the tuples.
    tentative = [Bucket(b.start, b.end, {"l": b.tables["l"]}) for b in buckets[3:]]
    diverged = run(fork, tentative)
    with pytest.raises(AssertionError, match="differ"):
        same_bytes(diverged, later)
    same_bytes(run(version, buckets[3:]), later, "after a fork went its own way")
    fork.restore(kept)
    assert fork.boundary == buckets[2].end
    same_bytes(run(fork, buckets[3:], [9]), later, "after restoring the fork")


def test_packed_in_pieces_a_state_is_the_same(
    engine: Engine, buckets: list[Bucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_PIECE_ROWS", 7)
    version = Version(engine)
    run(version, buckets[:1])
    base = version.snapshot()
    run(version, buckets[1:4])
    breaths: list[int] = []
    for since in (None, base):
        at_once = packing.pack(engine, version.snapshot(), since)
        pieces = packing.pack(engine, version.snapshot(), since, lambda: breaths.append(1))
        assert at_once.parts
        places = [(part.operator, part.family, part.partition) for part in at_once.parts]
        assert places == [(part.operator, part.family, part.partition) for part in pieces.parts]
        for one, other in zip(at_once.parts, pieces.parts, strict=True):
            assert one.rows.combine_chunks().equals(other.rows.combine_chunks())
    most = max(part.rows.num_rows for part in at_once.parts)
    assert most > 7, "something is divided"
    assert len(breaths) > 2 * len(at_once.parts)


def test_whole_state_packed_continues_in_another_engine(
    spark: SparkSession, engine: Engine, buckets: list[Bucket], later: Mapping[str, pa.Table]
) -> None:
    version, other = Version(engine), Version(Engine(every_kind_of_state(spark)))
    run(version, buckets[:1])
    other.unpack(version.pack())
    base = version.snapshot()
    run(version, buckets[1:3])
    changes = version.pack(since=base)
    whole = version.pack()
    assert changes.nbytes > 0
    other.unpack(changes)
    same_bytes(
        run(Version(other.engine, other.snapshot()), buckets[3:]),
        later,
        "from changes laid on an older state",
    )
    with pytest.raises(StateError, match="ask for the whole state"):
        other.unpack(changes)
    other.clear()
    with pytest.raises(StateError, match="ask for the whole state"):
        other.unpack(changes)
    other.unpack(whole)
    same_bytes(run(other, buckets[3:]), later, "from a whole packed state")


def test_a_packed_state_of_another_network_is_refused(
    spark: SparkSession, engine: Engine, buckets: list[Bucket]
) -> None:
    version = Version(engine)
    run(version, buckets[:2])
    packed = version.pack()
    network = Network("other", spark=spark)
    network.source("s", PLAIN).groupBy(window("1 s")).count().output("out")
    with pytest.raises(StateError, match="another network"):
        Version(Engine(network)).unpack(packed)


def test_a_state_packed_with_other_partitions_is_refused(spark: SparkSession) -> None:
    versions = []
    for partitions in (1, 2):
        network = Network("parts", partitions=partitions, spark=spark)
        network.source("s", PLAIN).groupBy(window("1 s"), "k").count().output("out")
        versions.append(Version(Engine(network)))
    rows = [(i, "abcdef"[i], i, 0.0) for i in range(6)]
    versions[0].advance([bucket(versions[0].engine, 0, 10, s=rows)])
    with pytest.raises(StateError, match="partitions"):
        versions[1].unpack(versions[0].pack())


def test_changes_tell_of_keys_that_are_gone(spark: SparkSession) -> None:
    """The mark of a forgotten key may be merged away; the changes must still have it."""
    versions = []
    for _ in (0, 1):
        network = Network("gone", spark=spark)
        source = network.source("s", PLAIN)
        source.groupBy("k").process(every_third(), "k string, n bigint", "int").output("out")
        versions.append(Version(Engine(network)))
    here, there = versions
    here.advance([bucket(here.engine, 0, 10, s=[(1, "a", 1, 0.0), (2, "b", 1, 0.0)])])
    there.unpack(here.pack())
    base = here.snapshot()
    rows = [(11, "a", 2, 0.0), (12, "a", 3, 0.0)]
    here.advance([bucket(here.engine, 10, 20, s=rows)])
    there.unpack(here.pack(since=base))
    rows = [(21, "a", 4, 0.0), (22, "a", 5, 0.0), (23, "b", 6, 0.0)]
    expected = run(here, [bucket(here.engine, 20, 30, s=rows)])
    assert expected["out"].num_rows == 0
    same_bytes(run(there, [bucket(there.engine, 20, 30, s=rows)]), expected)


def test_packed_state_survives_the_wire(
    engine: Engine, buckets: list[Bucket], later: Mapping[str, pa.Table]
) -> None:
    version = Version(engine)
    run(version, buckets[:3])
    packed = version.pack()
    sent = [dataclasses.replace(part, rows=_through_ipc(part.rows)) for part in packed.parts]
    version.clear()
    version.unpack(dataclasses.replace(packed, parts=sent))
    same_bytes(run(version, buckets[3:]), later)


def _through_ipc(table: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def test_clear_forgets_everything(engine: Engine, buckets: list[Bucket]) -> None:
    version = Version(engine)
    first = run(version, buckets[:2])
    version.clear()
    same_bytes(run(version, buckets[:2]), first, "after clear")


def small_engine(spark: SparkSession) -> Engine:
    network = Network("small", spark=spark)
    source = network.source("s", PLAIN)
    source.groupBy(window("5 s"), "k").agg(F.sum("x").alias("x")).output("out")
    return Engine(network)


def test_a_snapshot_stays_whole_while_the_version_goes_on(spark: SparkSession) -> None:
    version = Version(small_engine(spark))
    engine = version.engine
    make = [
        bucket(engine, i * 100_000, (i + 1) * 100_000, s=[(i * 100_000, "abc"[i % 3], i, i / 4)])
        for i in range(60)
    ]
    run(version, make[:5])
    kept = version.snapshot()
    expected = run(version, make[5:35])
    run(version, make[35:])
    version.restore(kept)
    same_bytes(run(version, make[5:35]), expected, "30 buckets later")


def test_files_go_with_the_last_state_that_names_them(spark: SparkSession) -> None:
    version = Version(small_engine(spark))
    engine = version.engine
    kept = []
    for i in range(12):
        rows = [(i * 10, key, i, 0.5) for key in "abcdefgh"]
        version.advance([bucket(engine, i * 10, i * 10 + 10, s=rows)])
        kept.append(version.snapshot())
    with_history = len(run_files(engine))
    kept.clear()
    gc.collect()
    named = {run.path for *_, run in version.snapshot().all_runs()}
    assert set(run_files(engine)) == named
    assert len(named) < with_history
    version.clear()
    gc.collect()
    assert run_files(engine) == []
    # Directories are used again, and there are no more of them than there were kept states.
    directories = [path for path in engine.directory.iterdir() if path.is_dir()]
    assert len(directories) <= 13
    for path in directories:
        assert list(path.iterdir()) == []


def test_an_empty_bucket_that_closes_nothing_runs_no_job(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network("idle", spark=spark)
    left, right = network.source("l", PLAIN), network.source("r", "k string, w int")
    left.groupBy(window("1 s"), "k").count().output("counts")
    left.join(right, "k", within="300 ms", how="left").output("joined")
    left.distinct("k", window=window("1 s")).output("distinct")
    version = Version(Engine(network))
    jobs: list[int] = []
    run = ColumnJob.run

    def counted(
        job: ColumnJob, streams: Mapping[str, pa.Table], at: str, told: Mapping[str, Any]
    ) -> dict[str, pa.Table]:
        jobs.append(version.boundary)
        return run(job, streams, at, told)

    monkeypatch.setattr(ColumnJob, "run", counted)
    version.advance([Bucket(0, 100, {})])
    assert jobs == []
    version.advance([bucket(version.engine, 100, 200, l=[(150, "a", 1, 0.5)])])
    assert jobs
    emitted = []
    for start in range(200, 3_000_000, 99_970):
        jobs.clear()
        out = version.advance([Bucket(start, start + 99_970, {})])
        rows = sum(table.num_rows for table in out.values())
        # The join knows the times of its tuples only to within its reach.
        assert bool(jobs) <= (rows > 0 or 200_000 < start < 600_000), start
        emitted.append(rows)
    assert sum(emitted) == 2


def test_oldest_contributing(spark: SparkSession) -> None:
    network = Network("oldest", spark=spark)
    source = network.source("s", PLAIN)
    other = network.source("o", "k string, w int")
    sums = source.groupBy(window("1 s"), "k").agg(F.sum("x").alias("x"))
    sums.output("sums")
    sums.groupBy(window("10 s")).agg(F.sum("x").alias("x")).output("chain")
    source.filter("n > 0").output("plain")
    source.join(other, "k", within=("1 s", "2 s"), how="left").output("joined")
    version = Version(Engine(network))
    assert version.oldest_contributing() == version.boundary
    rows = [(SECOND + 7, "a", 1, 0.5), (4 * SECOND + 3, "b", 1, 0.5)]
    version.advance([bucket(version.engine, 0, 4_500_000, s=rows)])
    # The open window of "chain" has the result of [1 s, 2 s), so it rests on that whole window.
    # (and a window of "sums" before it may reach back one second more).
    assert -SECOND <= version.oldest_contributing() <= SECOND
    version.advance([], 20 * SECOND)
    assert version.oldest_contributing() == version.boundary


def test_count_windows_and_user_state_rest_on_the_whole_stream(spark: SparkSession) -> None:
    network = Network("endless", spark=spark)
    source = network.source("s", PLAIN)
    source.groupBy(count_window(2), "k").count().output("out")
    source.groupBy(window("1 s"), "k").count().output("times")
    version = Version(Engine(network))
    version.advance([bucket(version.engine, 0, 10, s=[(1, "a", 1, 0.5), (2, "a", 1, 0.5)])])
    assert version.oldest_contributing() < -(2**60)


@pytest.fixture(scope="module")
def rebuilds(spark: SparkSession) -> Engine:
    """Operators with state below one input, below the other, below both, and below another."""
    network = Network("rebuild", spark=spark)
    source = network.source("s", PLAIN)
    other = network.source("o", PLAIN).withColumnRenamed("n", "m").select("k", "m")
    sums = source.groupBy(window("1 s", "500 ms"), "k").agg(F.sum("x").alias("x"))
    sums.groupBy(window("2 s")).agg(F.sum("x").alias("x"), F.count("*").alias("n")).output("chain")
    first = source.distinct("k", "n", window=window("700 ms"))
    joined = first.join(other, "k", within=("100 ms", "300 ms"), how="full")
    joined.groupBy(window("1 s")).agg(F.count("m").alias("m"), F.sum("n").alias("n")).output("ends")
    return Engine(network)


@pytest.fixture(scope="module")
def rebuilds_from(rebuilds: Engine) -> Bucket:
    rows = [(i * 37_000, "abc"[i % 3], i % 4, i / 4) for i in range(160)]
    return bucket(rebuilds, 0, 6 * SECOND, s=rows, o=rows[::3])


def test_a_rebuild_from_the_marker_gives_the_same_state(
    rebuilds: Engine, rebuilds_from: Bucket
) -> None:
    """The stream marker of undo/redo: replaying the input from there is enough."""
    for boundary in (2_345_678, 3_000_000, 4_100_000):
        version = Version(rebuilds)
        before = [_until(rebuilds_from, boundary)]
        after = [_since(rebuilds_from, boundary)]
        run(version, before)
        marker = version.oldest_contributing()
        assert marker < boundary
        rebuilt = Version(rebuilds)
        rebuilt.advance([_since(before[0], max(marker, 0))])
        same_bytes(run(rebuilt, after), run(version, after), f"rebuilt from {marker}")


def test_undo_rebuilds_only_the_operators_below_the_corrected_input(
    rebuilds: Engine, rebuilds_from: Bucket
) -> None:
    boundary = 3_345_678
    before, after = _until(rebuilds_from, boundary), _since(rebuilds_from, boundary)
    whole = rebuilds.advance(EMPTY, [before]).state
    expected = rebuilds.advance(whole, [after]).outputs
    # Of one input: what the other reaches alone stays, and rests on older input.
    undone, marker = give_up(rebuilds, whole, ["o"])
    join, ends = sorted(undone.gone)
    assert (join.partition("_")[0], ends.partition("_")[0]) == ("aggregate", "join")
    assert rebuilds.oldest_contributing(whole) < marker < boundary
    rebuilt = rebuild(rebuilds, undone, [_since(before, marker)])
    assert all(rebuilt.runs[name] is runs for name, runs in undone.left.runs.items())
    assert set(rebuilt.runs) == set(whole.runs) > undone.gone
    same_bytes(rebuilds.advance(rebuilt, [after]).outputs, expected, f"rebuilt from {marker}")
    # The other one fails, too: nothing is left then.
    nothing, older = give_up(rebuilds, undone, ["s", "o"])
    assert not nothing.left.runs
    assert older < marker
    assert give_up(rebuilds, nothing, ["s"]) == (nothing, boundary)
    rebuilt = rebuild(rebuilds, nothing, [_since(before, max(0, older))])
    same_bytes(rebuilds.advance(rebuilt, [after]).outputs, expected, f"rebuilt from {older}")


def _until(bucket_: Bucket, boundary: int) -> Bucket:
    return split(bucket_.tables, [bucket_.start, boundary])[0]


def _since(bucket_: Bucket, boundary: int) -> Bucket:
    return split(bucket_.tables, [boundary, bucket_.end])[0]
