"""The oracle: the same query as one batch Spark job over the whole input.

It is written with plain DataFrame operations and shares no code with the engine's operators,
so that a mistake would have to be made twice. It knows nothing of buckets; ``boundary`` alone
says how far the stream has come, and with it which windows have closed.

``seq`` is right for sources and for what keeps a tuple's place (filters, maps, unions,
distinct, count windows); elsewhere it is null, for there the engine orders by a hash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

_SHUFFLES = "spark.sql.shuffle.partitions"
SYSTEM = ("stime", "tmax", "seq")


def _micros(name: str) -> Column:
    return F.unix_micros(F.col(name))


def _system() -> list[Column]:
    return [F.col(name) for name in SYSTEM]


def _no_seq() -> Column:
    return F.lit(None).cast("bigint").alias("seq")


def _numbered(aggregates: Mapping[str, Column]) -> list[Column]:
    """Under names of their own, because Spark takes an input column for a result's alias."""
    return [column.alias(f"__{i}") for i, column in enumerate(aggregates.values())]


def _named(aggregates: Mapping[str, Column]) -> list[Column]:
    return [F.col(f"__{i}").alias(name) for i, name in enumerate(aggregates)]


@dataclass(frozen=True)
class OracleStream:
    """A whole stream up to ``boundary`` (microseconds), as one DataFrame."""

    frame: DataFrame
    boundary: int

    @classmethod
    def of(cls, spark: SparkSession, table: pa.Table, boundary: int) -> OracleStream:
        """A source's tuples, all of them older than ``boundary``."""
        # Spark makes a task of every chunk, and a log has one for each of its frames.
        return cls(spark.createDataFrame(table.combine_chunks()), boundary)

    def result(self) -> pa.Table:
        """Run the batch job; what has a tuple time before the boundary, in order."""
        frame = self.frame.where(_micros("stime") < self.boundary).orderBy("stime", "seq")
        conf = frame.sparkSession.conf
        before = conf.get(_SHUFFLES)
        conf.set(_SHUFFLES, "1")  # 200 tasks for a handful of rows take seconds
        try:
            return frame.toArrow()
        finally:
            conf.set(_SHUFFLES, before or "200")

    def derive(self, function: Callable[[DataFrame], DataFrame]) -> OracleStream:
        """Any batch code; it sees the system columns and must keep them."""
        return OracleStream(function(self.frame), self.boundary)

    def filter(self, condition: Column | str) -> OracleStream:
        return self.derive(lambda df: df.where(condition))

    def select(self, *columns: Column | str) -> OracleStream:
        return self.derive(lambda df: df.select(*_system(), *columns))

    def with_column(self, name: str, value: Column) -> OracleStream:
        return self.derive(lambda df: df.withColumn(name, value))

    def union(self, *others: OracleStream) -> OracleStream:
        """Equal times: by place in the own stream, then by place in the union."""
        frames = [self.frame, *(other.frame for other in others)]
        width = 2 ** max(1, (len(frames) - 1).bit_length())
        united = None
        for index, frame in enumerate(frames):
            # A hash may overflow here, as it does in the engine.
            placed = frame.withColumn("seq", F.expr(f"shiftleft(seq, {width.bit_length() - 1})"))
            placed = placed.withColumn("seq", F.col("seq").bitwiseOR(F.lit(index).cast("bigint")))
            united = placed if united is None else united.unionByName(placed)
        assert united is not None
        return OracleStream(united, self.boundary)

    def distinct(self, keys: Sequence[str], window: int) -> OracleStream:
        """The first tuple of each key in every tumbling window of ``window`` microseconds."""
        start = F.floor(_micros("stime") / F.lit(window))
        order = Window.partitionBy(start, *keys).orderBy("stime", "seq")
        return self.derive(
            lambda df: df.withColumn("__n", F.row_number().over(order)).where("__n = 1").drop("__n")
        )

    def aggregate(
        self, size: int, advance: int, keys: Sequence[str], aggregates: Mapping[str, Column]
    ) -> OracleStream:
        """Time windows of ``size`` microseconds, one every ``advance``."""
        time = _micros("stime")
        newest = time - F.pmod(time, F.lit(advance))
        back = F.explode(F.sequence(F.lit(0), F.lit(-(-size // advance))))
        frame = self.frame.withColumn("__back", back)
        frame = frame.withColumn("__start", newest - F.col("__back") * advance)
        frame = frame.where((F.col("__start") <= time) & (time < F.col("__start") + size))
        frame = frame.where(F.col("__start") + size <= self.boundary)
        grouped = frame.groupBy("__start", *keys).agg(
            F.max("tmax").alias("__tmax"), *_numbered(aggregates)
        )
        end = F.col("__start") + size
        window = F.struct(
            F.timestamp_micros("__start").alias("start"), F.timestamp_micros(end).alias("end")
        )
        return OracleStream(
            grouped.select(
                F.timestamp_micros(end - 1).alias("stime"),
                F.col("__tmax").alias("tmax"),
                _no_seq(),
                window.alias("window"),
                *keys,
                *_named(aggregates),
            ),
            self.boundary,
        )

    def count_aggregate(
        self, size: int, advance: int, keys: Sequence[str], aggregates: Mapping[str, Column]
    ) -> OracleStream:
        """Windows of ``size`` tuples of a group, one every ``advance`` tuples."""
        order = Window.partitionBy(*keys).orderBy("stime", "seq")
        frame = self.frame.withColumn("__number", F.row_number().over(order) - 1)
        back = F.explode(F.sequence(F.lit(0), F.lit(-(-size // advance))))
        frame = frame.withColumn("__back", back)
        window = F.floor(F.col("__number") / advance) - F.col("__back")
        frame = frame.withColumn("__window", window)
        first = F.col("__window") * advance
        inside = (F.col("__number") >= first) & (F.col("__number") < first + size)
        frame = frame.where((F.col("__window") >= 0) & inside)
        grouped = frame.groupBy("__window", *keys).agg(
            F.count("*").alias("__filled"),
            F.max(F.struct("stime", "seq")).alias("__last"),
            F.max("tmax").alias("__tmax"),
            *_numbered(aggregates),
        )
        full = grouped.where(F.col("__filled") == size)
        times = [F.col("__last.stime"), F.col("__tmax").alias("tmax"), F.col("__last.seq")]
        return OracleStream(full.select(*times, *keys, *_named(aggregates)), self.boundary)

    def join(
        self,
        other: OracleStream,
        on: Sequence[tuple[str, str]],
        before: int,
        after: int,
        how: str = "inner",
        condition: Column | None = None,
    ) -> OracleStream:
        """``condition`` names columns as ``l.x`` and ``r.x``; shared keys appear once."""
        left, right = self.frame.alias("l"), other.frame.alias("r")
        apart = F.unix_micros("r.stime") - F.unix_micros("l.stime")
        test = apart.between(-before, after)
        for mine, theirs in on:
            test = test & (F.col(f"l.{mine}") == F.col(f"r.{theirs}"))
        if condition is not None:
            test = test & condition
        joined = left.join(right, test, how)
        l_time, r_time = F.unix_micros("l.stime"), F.unix_micros("r.stime")
        stime = (
            F.when(r_time.isNull(), l_time + after)
            .when(l_time.isNull(), r_time + before)
            .otherwise(F.greatest(l_time, r_time))
        )
        shared = {mine for mine, theirs in on if mine == theirs}
        columns = [
            F.coalesce(f"l.{name}", f"r.{name}" if name in shared else f"l.{name}").alias(name)
            for name in self.frame.columns
            if name not in SYSTEM
        ]
        columns += [
            F.col(f"r.{name}")
            for name in other.frame.columns
            if name not in SYSTEM and name not in shared
        ]
        times = [
            F.timestamp_micros(stime).alias("stime"),
            F.greatest("l.tmax", "r.tmax").alias("tmax"),
            _no_seq(),
        ]
        result = joined.select(*times, *columns).where(_micros("stime") < self.boundary)
        return OracleStream(result, self.boundary)
