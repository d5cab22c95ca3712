"""A hash is not a key: results stay right when different keys share their hash."""

from __future__ import annotations

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from holdfast.spark.engine import Engine
from holdfast.testing import run, same_rows, split
from tests.spark.networks import every_kind_of_state, some_tables
from tests.spark.support import SECOND


def test_results_do_not_depend_on_hashes(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(every_kind_of_state(spark))
    buckets = split(some_tables(engine, 21, 150), [0, 700_000, 1_500_000, 3_600_000, 9 * SECOND])
    expected = run(engine, buckets)
    honest = F.xxhash64

    def few(*columns: Column) -> Column:
        return F.pmod(honest(*columns), F.lit(2).cast("bigint"))

    monkeypatch.setattr(F, "xxhash64", few)
    colliding = run(Engine(every_kind_of_state(spark)), buckets)
    for name, table in colliding.items():
        same_rows(table, expected[name], name)
