"""For tests of tasks that stay: queries, buckets, and tasks of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, window
from holdfast.spark import column_job, engine
from holdfast.spark.column_job import ColumnJob
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.resident import Resident, Residents, residents_of
from holdfast.spark.resident_task import Order
from holdfast.testing import tuples

SECOND = 1_000_000
SECONDS = 30.0


def sums(spark: SparkSession, queries: int = 1) -> Engine:
    network = Network("sums", bucket="1 second", partitions=2, spark=spark)
    source = network.source("s", "k string, v double")
    for number in range(queries):
        wide = window(f"{number + 3} seconds")
        source.groupBy(wide, "k").agg(F.sum("v").alias("v")).output(f"out_{number}")
    return Engine(network)


def bucket(engine: Engine, number: int) -> Bucket:
    start = number * SECOND
    rows = [(start + at, f"key {at % 3}", at / 7 + number) for at in range(5)]
    return Bucket(start, start + SECOND, {"s": tuples(engine, "s", rows)})


class Places:
    """Residents of the test's own, which can be switched off; and how many buckets were jobs."""

    def __init__(self, spark: SparkSession) -> None:
        _end_those_of_other_tests(residents_of(spark.sparkContext))
        self.own = Residents(spark.sparkContext)
        self.own._most = 2
        self._none = Residents(spark.sparkContext)
        self._none._most = 0
        self.on = True
        self.jobs = 0

    def of(self, context: Any) -> Residents:
        return self.own if self.on else self._none


def _end_those_of_other_tests(theirs: Residents) -> None:
    """With these and the test's own the session would have no place left for a job."""
    free, theirs._free = theirs._free, []
    theirs._leave(free)
    for each in free:
        each.wait_for_end(SECONDS)


@contextmanager
def own_residents(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """Engines use these residents, and no others, meanwhile."""
    made = Places(spark)
    execute = ColumnJob._execute

    def counted(self: ColumnJob, files: str, told: str) -> None:
        made.jobs += 1
        execute(self, files, told)

    monkeypatch.setattr(ColumnJob, "_execute", counted)
    monkeypatch.setattr(column_job, "residents_of", made.of)
    monkeypatch.setattr(engine, "residents_of", made.of)
    yield made
    made.own.close()


def ordered(one: Resident, what: Callable[[], object]) -> bool:
    """Have a task that stays do something else than a part of a job."""

    class Does:
        def carry_out(self, order: Order) -> None:
            what()

        def take_back(self, order: Order) -> None:
            pass

    pickled: bytes = cloudpickle.dumps(Does())  # type: ignore[no-untyped-call]
    one.order(f"does {what}", lambda: pickled, Order(0, "", ""))
    return one.answer()
