"""Plan once, execute many times.

A bucket's job is the same query every time; only its input and its state differ. Spark
analyses, optimizes and plans a DataFrame anew for each action, some 40 ms on a small machine,
and runs a DataFrame it has run before from the shuffle files of the first time. So a
``PreparedQuery`` keeps the physical plan and for each execution

1. reads the bucket's Arrow stream into an RDD of rows (decoded on the executors),
2. copies the plan with those RDDs in place of its leaves,
3. runs it as one Spark job and takes the result back as Arrow.

This reaches below PySpark's public API, through methods that are public on the JVM; it is the
only file that does, and PySpark is pinned.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.util import _load_from_socket


def input_frame(spark: SparkSession, schema: StructType, scratch: Path) -> DataFrame:
    """An empty DataFrame of ``schema`` whose leaf a prepared query can replace."""
    path = scratch / "empty.arrows"
    write_stream(path, arrow_schema(schema).empty_table(), 1)
    return DataFrame(_ArrowReader(spark).dataset(path, schema.json()), spark)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema Spark gives data of ``schema``."""
    return to_arrow_schema(schema, timezone="UTC", prefers_large_types=False)


def write_stream(path: Path, table: pa.Table, slices: int) -> None:
    """Write ``table`` as an Arrow stream of ``slices`` record batches, one per Spark task."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        if table.num_rows == 0:
            # A stream without any batch would become a plan without any task.
            writer.write_batch(pa.RecordBatch.from_pylist([], schema=table.schema))
            return
        size = -(-table.num_rows // slices)
        for start in range(0, table.num_rows, size):
            part = table.slice(start, size).combine_chunks().to_batches()
            writer.write_batch(part[0])


class PreparedQuery:
    """A DataFrame over input frames, planned once."""

    def __init__(self, result: DataFrame, leaves: Mapping[str, DataFrame]) -> None:
        self._spark = result.sparkSession
        jvm = _jvm(self._spark)
        self._reader = _ArrowReader(self._spark)
        self._serve: Any = jvm.PythonRDD.collectAndServe
        self._dataset: Any = result._jdf
        self._schema = arrow_schema(result.schema)
        self._leaf_schemas = {name: leaf.schema.json() for name, leaf in leaves.items()}
        rdd_ids = {_leaf_rdd(leaf._jdf).id(): name for name, leaf in leaves.items()}
        plan = self._dataset.queryExecution().executedPlan()
        nil = jvm.PythonUtils.toSeq(jvm.java.util.ArrayList())
        self._root = _PlanNode.of(plan, rdd_ids, nil)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def execute(self, inputs: Mapping[str, Path]) -> pa.Table:
        """Run the query over the Arrow streams in ``inputs``, one for each leaf."""
        rdds = {
            name: _leaf_rdd(self._reader.dataset(inputs[name], schema))
            for name, schema in self._leaf_schemas.items()
        }
        plan = self._root.instantiate(rdds)
        batches = self._dataset.toArrowBatchRdd(plan)
        served = self._serve(batches)
        with _load_from_socket(served, NoOpSerializer()) as stream:
            payloads = list(stream)
        return pa.Table.from_batches(
            [pa.ipc.read_record_batch(pa.py_buffer(each), self._schema) for each in payloads],
            self._schema,
        )


class _PlanNode:
    """The shape of the physical plan, read once so that an execution makes few JVM calls."""

    def __init__(self, plan: Any, leaf: str | None, children: list[_PlanNode], nil: Any) -> None:
        self._plan = plan
        self._leaf = leaf
        self._children = children
        self._nil = nil
        if leaf is not None:
            self._scan = [plan.output(), plan.name(), plan.outputPartitioning()]
            self._scan += [plan.outputOrdering(), plan.stream()]

    @classmethod
    def of(cls, plan: Any, rdd_ids: Mapping[int, str], nil: Any) -> _PlanNode:
        name = plan.getClass().getSimpleName()
        if name == "RDDScanExec" and plan.rdd().id() in rdd_ids:
            return cls(plan, rdd_ids[plan.rdd().id()], [], nil)
        children = plan.children()
        below = [cls.of(children.apply(i), rdd_ids, nil) for i in range(children.size())]
        return cls(plan, None, below, nil)

    def instantiate(self, rdds: Mapping[str, Any]) -> Any:
        """A fresh copy of the plan from here down: Spark caches RDDs inside plan nodes."""
        if self._leaf is not None:
            output, name, partitioning, ordering, stream = self._scan
            return self._plan.copy(output, rdds[self._leaf], name, partitioning, ordering, stream)
        if not self._children:
            return self._plan.clone()
        children = self._nil
        for child in reversed(self._children):
            children = children.prepended(child.instantiate(rdds))
        return self._plan.withNewChildren(children)


class _ArrowReader:
    """Reads Arrow streams into Spark; finding a JVM class costs a call for each package."""

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark._jsparkSession
        self._utils = _jvm(spark).org.apache.spark.sql.api.python.PythonSQLUtils

    def dataset(self, path: Path, schema_json: str) -> Any:
        batches = self._utils.readArrowStreamFromFile(str(path))
        return self._utils.toDataFrame(batches, schema_json, self._session)


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm


def _leaf_rdd(dataset: Any) -> Any:
    return dataset.logicalPlan().rdd()
