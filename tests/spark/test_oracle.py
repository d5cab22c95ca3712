"""The oracle's own way into Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from holdfast.frames import TIME
from holdfast.testing.oracle import OracleStream


def test_a_table_of_many_small_chunks_is_few_tasks(spark: SparkSession) -> None:
    """What a log holds comes in a chunk for each of its frames; a task for each takes minutes."""

    def chunk(at: int) -> pa.Table:
        times = pa.array([at]).cast(TIME)
        return pa.table({"stime": times, "tmax": times, "seq": [at], "v": [float(at)]})

    table = pa.concat_tables([chunk(at) for at in range(300)])
    assert table["v"].num_chunks == 300
    stream = OracleStream.of(spark, table, 1_000_000)
    assert stream.frame.rdd.getNumPartitions() <= 4
    found = stream.result()
    assert np.array_equal(found["v"].to_numpy(), np.arange(300.0))
