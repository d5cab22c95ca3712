"""The demonstration's query once more: one batch job of plain Spark over all that was logged."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast.demo.readings import REGIONS
from holdfast.testing.compare import same_rows
from holdfast.testing.oracle import OracleStream
from holdfast.testing.oracle_aggregates import mean_exactly
from holdfast.times import SECOND


def batch_latency(spark: SparkSession, logged: Mapping[str, pa.Table], until: int) -> pa.Table:
    """The results older than ``until``, from the regions' logs."""
    streams = []
    for region in REGIONS:
        table = logged[region]
        ids = pa.array(np.arange(table.num_rows, dtype=np.int64))
        streams.append(OracleStream.of(spark, table.append_column("seq", ids), until))
    results = {
        "probes": F.count("*"),
        "latency_ms": mean_exactly(F.col("latency_ms")),
        "slowest_ms": F.max("latency_ms"),
    }
    united = streams[0].union(*streams[1:])
    return united.aggregate(SECOND, SECOND, ["server"], results).result()


def difference(stable: pa.Table, batch: pa.Table) -> str | None:
    """What is not the same, bit for bit; None if every tuple is."""
    times = stable["stime"].cast(pa.int64()).to_numpy()
    if (np.diff(times) < 0).any():
        return "the stable stream is not in the order of its times"
    try:
        same_rows(stable, batch.drop_columns(["seq"]), "the stable stream")
    except AssertionError as error:
        return str(error)
    return None
