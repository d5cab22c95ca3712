"""Steps that do not depend on each other are shared between tasks.

That they give the same bytes is tested where small buckets are compared with large ones, and few
cores with many (``test_layouts``): networks with every kind of state have steps to share.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, window
from holdfast.spark.columns import share_steps
from holdfast.spark.engine import Engine


def queries(spark: SparkSession, count: int) -> Network:
    network = Network("queries", bucket="1 second", partitions=2, spark=spark)
    source = network.source("s", "k string, v double")
    for index in range(count):
        sums = source.groupBy(window(f"{index + 1} seconds"), "k").agg(F.sum("v").alias("v"))
        # The last one has another step behind its own.
        if index == count - 1:
            sums = sums.groupBy(window("10 seconds")).agg(F.max("v").alias("v"))
        sums.output(f"query_{index}")
    return network


def test_steps_are_shared_evenly_and_those_that_read_each_other_stay_together(
    spark: SparkSession,
) -> None:
    (stage,) = Engine(queries(spark, 5))._column_runner()._stages[False]
    names = {part.name for part in stage.parts}
    has_step = {part.name for part in stage.parts if part.step is not None}
    assert share_steps(stage.parts, 1) == ()
    assert share_steps(stage.parts[:2], 2) == ()
    for cores, steps in ((2, [3, 3]), (3, [2, 2, 2])):
        shares = share_steps(stage.parts, cores)
        assert sorted(len(share & has_step) for share in shares) == steps
        assert sorted(name for share in shares for name in share) == sorted(names)
        for part in stage.parts:
            (home,) = (share for share in shares if part.name in share)
            assert part.reads & names <= home
