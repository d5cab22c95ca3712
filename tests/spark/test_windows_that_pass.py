"""Windows that come and go within one job, although the log of a run cut short has them open.

How the stream is cut into jobs depends on when input comes, so a run after a restart goes other
steps than the one before it. What that one wrote stays in the log. Operators whose input can be
replayed close such windows again; those that keep every change must have been told.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, count_window, session_window, window
from holdfast.core.settings import Continuous
from holdfast.spark.engine import Bucket
from holdfast.testing import run, same_bytes, split, tuples
from tests.spark.continuous_runs import Fragment
from tests.spark.networks import every_third
from tests.spark.support import PLAIN, SECOND

# Of "a" everything comes and goes between 1 s and 4 s: three tuples, and silence.
TIMES = [1_200_000, 1_500_000, 2_300_000, 5_200_000, 5_400_000, 5_600_000, 5_700_000]


def below_another(spark: SparkSession) -> Network:
    """Every operator whose windows end when tuples or a silence say so, none of them replayed."""
    network = Network("passing", spark=spark)
    source = network.source("s", PLAIN)
    slots = source.groupBy(window("100 ms"), "k").agg(F.count("*").alias("n"))
    count = F.count("*").alias("tuples")
    slots.groupBy(session_window("1 s"), "k").agg(count).output("sessions")
    slots.groupBy(count_window(3), "k").agg(count).output("threes")
    slots.groupBy(count_window(2, 1), "k").agg(count).output("overlapping")
    slots.groupBy("k").process(every_third(), "k string, n bigint", "int").output("process")
    # Holds the extent, as long as its only window is open.
    source.groupBy(count_window(100)).agg(count).output("many")
    return network


@pytest.mark.parametrize("quiet", [False, True], ids=["at once", "after a quiet time"])
def test_a_run_that_was_cut_short_had_them_open(
    quiet: bool, spark: SparkSession, tmp_path: Path
) -> None:
    network = below_another(spark)
    rows: list[tuple[Any, ...]] = [(500_000, "b", 0, 0.0), *((time, "a", 0, 0.0) for time in TIMES)]
    fragment = Fragment(network, tmp_path, Continuous(), {}, random.Random(1))
    fragment.tables = {"s": tuples(fragment.engine, "s", rows)}
    expected = run(fragment.engine, split(fragment.tables, [0, 7 * SECOND]))
    found: list[dict[str, pa.Table]] = []

    def job(start: int, end: int) -> None:
        found.append(fragment.advance(_buckets(fragment, start, end)))

    job(0, 1)
    job(1, 2)  # everything of "a" is open
    found.pop()
    fragment.crash(fragment.records[0])
    job(1, 4)  # and here it has ended
    if quiet:
        # Nothing opens, so no frame of the log has the number of windows that are open.
        job(4, 5)
    fragment.crash(fragment.records[-1])
    job(5 if quiet else 4, 7)
    fragment.log.close()
    fragment.engine.close()
    together = {name: pa.concat_tables([each[name] for each in found]) for name in expected}
    same_bytes(together, expected, "with crashes and without")


def _buckets(fragment: Fragment, start: int, end: int) -> list[Bucket]:
    return split(fragment.tables, [start * SECOND, end * SECOND])
