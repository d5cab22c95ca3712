"""The same bits from one task or one task for each partition, and on any number of cores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, window
from holdfast.spark import engine as engines
from holdfast.spark.engine import Engine, Sharding
from holdfast.spark.stages import plan_waves
from holdfast.testing import run, same_bytes, same_rows, split
from tests.spark.networks import digests, every_kind_of_state, some_tables
from tests.spark.support import SECOND

ROOT = Path(__file__).parent.parent.parent
EDGES = [0, 900_000, 3_500_000, 9 * SECOND]


def test_one_task_and_many_give_the_same_bytes(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether every bucket is spread over tasks, or only the larger ones are."""
    engine = Engine(every_kind_of_state(spark, partitions=3))
    buckets = split(some_tables(engine, 11, 120), EDGES)
    one_task = run(engine, buckets)
    monkeypatch.setattr(engines, "_SHARDING", Sharding(0, 0, 0))
    same_bytes(run(engine, buckets), one_task, "one task and one for each partition")
    sizes = [sum(table.num_rows for table in bucket.tables.values()) for bucket in buckets]
    monkeypatch.setattr(engines, "_SHARDING", Sharding(sorted(sizes)[1], 0, sorted(sizes)[1]))
    same_bytes(run(engine, buckets), one_task, "one task and both in turn")


def test_state_is_written_once_though_a_stream_is_united_with_itself(spark: SparkSession) -> None:
    """Two tasks that compute it at the same moment would take each other's files away."""
    network = Network("twice", spark=spark)
    values = network.source("l", "k string, v bigint")
    sums = values.groupBy(window("1 second"), "k").agg(F.sum("v").alias("v"))
    sums.union(sums).output("twice")
    (output,) = network.outputs.values()
    first, second = plan_waves([output.operator])
    assert [root.name for root in first.roots] == [each.name for each in second.reads]
    assert second.roots == (output.operator,)


def test_the_first_large_jobs_are_not_worth_another_plan(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_SHARDING", Sharding(rows=100, first_large=2, column_rows=100))
    engine = Engine(every_kind_of_state(spark, partitions=3))
    found = [engine._is_sharded(rows) for rows in (100, 10, 100, 10, 100, 99)]
    assert found == [False, False, False, False, True, False]


def test_the_number_of_partitions_changes_no_result(spark: SparkSession) -> None:
    outputs = []
    for partitions in (1, 5):
        engine = Engine(every_kind_of_state(spark, partitions))
        outputs.append(run(engine, split(some_tables(engine, 13, 120), EDGES), [2, 3]))
    for name, table in outputs[0].items():
        same_rows(table, outputs[1][name], name)
    same_bytes(outputs[0], outputs[1], "1 and 5 partitions")


@pytest.mark.long
@pytest.mark.thorough
def test_the_number_of_cores_changes_no_bit(spark: SparkSession) -> None:
    masters = ["local[1]", "local[4]"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    other = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.networks", *masters],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    here = digests(Engine(every_kind_of_state(spark)))
    printed = other.communicate(timeout=200)[0]
    assert other.returncode == 0
    for line, master in zip(printed.splitlines(), masters, strict=True):
        assert json.loads(line) == here, master
