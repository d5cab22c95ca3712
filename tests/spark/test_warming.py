"""When a replica is warm: when its jobs get no quicker, or after as long as it may take."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, window
from holdfast.core.settings import Keeping
from holdfast.errors import InputError
from holdfast.nodes.jobs import Jobs
from holdfast.spark.engine import Engine as SparkEngine
from holdfast.spark.warming import VARIABLE, WarmUp, sample, warm_up


def jobs_until_warm(warming: WarmUp, first_s: float, falls: float, least_s: float) -> int:
    """How many jobs are run if each takes so much less than the one before."""
    took_s, count, lasted_s = first_s, 0, 0.0
    while not warming.is_over(lasted_s):
        warming.took(took_s)
        lasted_s += took_s
        took_s, count = max(least_s, took_s * falls), count + 1
    return count


def test_jobs_that_take_the_same_are_warm_at_once() -> None:
    assert jobs_until_warm(WarmUp(60.0), 0.02, 1.0, 0.02) == 16


def test_jobs_that_get_quicker_go_on_until_they_do_not() -> None:
    # From 200 to 20 ms takes 45 jobs at 5 % each.
    assert 45 <= jobs_until_warm(WarmUp(60.0), 0.2, 0.95, 0.02) <= 45 + 16


def test_it_never_takes_longer_than_was_said() -> None:
    assert jobs_until_warm(WarmUp(2.0), 0.5, 0.99, 0.01) == 5
    assert jobs_until_warm(WarmUp(0.0), 0.5, 0.99, 0.01) == 0


@pytest.mark.parametrize("said", ["long", "-1", "nan", "601"])
def test_other_than_seconds_are_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, said)
    with pytest.raises(InputError, match=f"from 0 to 600; it is '{said}'"):
        WarmUp()


class Engine:
    """Notes its jobs, each of which takes as long as the one before."""

    def __init__(self, done: list[str]) -> None:
        self.input_schemas: dict[str, Any] = {}
        self.is_open = True
        self._done = done

    def engine(self) -> Engine:
        return self

    def activate(self) -> None:
        pass

    def advance(self, state: Any, buckets: Any, boundary: int, large: bool = False) -> Any:
        done = "made up" if buckets else "windows over"
        self._done.append(f"{done}, large" if large else done)
        return SimpleNamespace(state=state)


@pytest.mark.parametrize("goes_on", [False, True])
def test_all_but_the_first_ones_wait_for_whatever_else_is_to_be_done(
    goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "600")
    done: list[str] = []
    warm = threading.Event()
    jobs = Jobs(cast(Any, Engine(done)), Keeping.NOTHING, lambda event: None)
    jobs.warm_up(warm.set, goes_on)
    for _ in range(3):
        jobs.call(lambda: done.append("other"))
    jobs.start()
    assert warm.wait(60.0)
    jobs.close()
    # The first job after a restart is a large one: its workers are there when it comes.
    first = ["made up", "windows over", "made up"]
    if goes_on:
        first = ["made up, large", "windows over, large", *first]
    assert done[: len(first) + 3] == first + ["other"] * 3
    assert set(done[len(first) + 3 :]) == {"made up"}
    assert len(done) >= 3 + 16


def test_what_is_computed_of_windows_that_end_is_planned_before_one_does(
    spark: SparkSession,
) -> None:
    """Spark takes a second to plan what only its JVM can compute, and results would wait for it."""
    network = Network("ends", bucket="1 second", partitions=2, spark=spark)
    sums = network.source("s", "k string, v double").groupBy(window("10 seconds"), "k")
    totals = sums.agg(F.sum("v").alias("total"), F.count("*").alias("n"))
    shown = totals.select("k", F.format_string("%s of %s", "total", "n").alias("text"))
    again = shown.groupBy(window("1 minute"), "text").agg(F.count("*").alias("n"))
    again.select(F.format_string("%s times", "n").alias("text")).output("out")
    engine = SparkEngine(network)
    warm_up(engine)
    in_jvm = [stage for stage in engine._column_runner()._stages[False] if stage.in_jvm]
    assert len(in_jvm) == 2
    assert not any(stage.query for stage in in_jvm)
    warm_up(engine, closes=True)
    assert all(stage.query for stage in in_jvm)


def test_one_can_divide_by_what_is_made_up() -> None:
    fields = [("stime", pa.int64()), ("readings", pa.int64()), ("cpu", pa.float64())]
    made = sample(pa.schema([*fields, ("server", pa.string())]), 3)
    assert made.num_rows == 3
    for column in ("readings", "cpu"):
        assert pc.divide(made[column], made[column]).to_pylist() == [1, 1, 1]
    assert made["server"].null_count == 0


def test_where_there_is_to_be_one_job_it_is_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    done: list[str] = []
    warm = threading.Event()
    jobs = Jobs(cast(Any, Engine(done)), Keeping.NOTHING, lambda event: None)
    jobs.warm_up(warm.set, goes_on=True)
    jobs.start()
    assert warm.wait(60.0)
    jobs.close()
    assert done == ["made up"]
