"""Plan once, execute many times.

A bucket's job is the same query every time; only its input and its state differ. Spark
analyses, optimizes and plans a DataFrame anew for each action, some 40 ms on a small machine,
and runs a DataFrame it has run before from the shuffle files of the first time. So a
``PreparedQuery`` keeps the physical plan and for each execution

1. reads the bucket's Arrow stream into an RDD of rows (decoded on the executors),
2. copies the plan with those RDDs in place of its leaves,
3. runs it as one Spark job and takes the result back as Arrow.

This reaches below PySpark's public API, through methods that are public on the JVM; so do the files
that read a query's plan (``translation``, ``plan_text``, ``lineage``). Hence the bounds of
PySpark's versions in ``pyproject.toml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark.util import _load_from_socket

from holdfast import disk
from holdfast.arrow_types import arrow_schema as arrow_schema
from holdfast.disk import Operation


def input_frame(spark: SparkSession, schema: StructType, scratch: Path) -> DataFrame:
    """An empty DataFrame of ``schema`` whose leaf a prepared query can replace."""
    path = scratch / "empty.arrows"
    write_stream(path, arrow_schema(schema).empty_table(), 1)
    return DataFrame(_ArrowReader(spark).dataset(path, schema.json()), spark)


def leaf_number(frame: DataFrame) -> int:
    """The number by which plans over an input frame can be told to read it."""
    number: int = _leaf_rdd(frame._jdf).id()
    return number


def leaves_read(frame: DataFrame, leaves: Mapping[int, str]) -> set[str]:
    """The names of the input frames that ``frame`` is computed from, by their numbers."""
    plan: Any = frame._jdf.queryExecution().optimizedPlan()
    found = [each for each in _items(plan.collectLeaves()) if _is_rdd(each)]
    return {leaves[each.rdd().id()] for each in found if each.rdd().id() in leaves}


def _is_rdd(plan: Any) -> bool:
    return bool(plan.getClass().getSimpleName() == "LogicalRDD")


def write_stream(path: Path, table: pa.Table, slices: int) -> None:
    """Write ``table`` as an Arrow stream of ``slices`` record batches, one per Spark task."""
    disk.check(Operation.CREATE, path)
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
        used = _UsedColumns({_leaf_rdd(leaf._jdf).id(): name for name, leaf in leaves.items()})
        plan = self._dataset.queryExecution().executedPlan()
        nil = jvm.PythonUtils.toSeq(jvm.java.util.ArrayList())
        self._root = _PlanNode.of(plan, used, None, nil)
        self._leaf_schemas = {
            name: StructType([leaf.schema.fields[at] for at in used.columns(name)])
            for name, leaf in leaves.items()
        }
        self._leaf_json = {name: schema.json() for name, schema in self._leaf_schemas.items()}

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def columns(self, leaf: str) -> list[str]:
        """The columns of a leaf that the query uses; others need not be written for it."""
        return self._leaf_schemas[leaf].fieldNames()

    def execute(self, inputs: Mapping[str, Path]) -> pa.Table:
        """Run the query over Arrow streams, one for each leaf, with the columns it uses."""
        rdds = {
            name: _leaf_rdd(self._reader.dataset(inputs[name], schema))
            for name, schema in self._leaf_json.items()
        }
        plan = self._root.instantiate(rdds)
        batches = self._dataset.toArrowBatchRdd(plan)
        served = self._serve(batches)
        stream: Any = _load_from_socket(served, NoOpSerializer())
        # Before PySpark 4.3 it is a generator, which lets go of its socket when it is collected.
        with stream if hasattr(stream, "__enter__") else closing(stream) as found:
            payloads = list(found)
        return pa.Table.from_batches(
            [pa.ipc.read_record_batch(pa.py_buffer(each), self._schema) for each in payloads],
            self._schema,
        )


class _UsedColumns:
    """Which columns of each leaf any part of the plan looks at, by position."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._used: dict[str, set[int]] = {name: set() for name in names.values()}

    def leaf(self, plan: Any) -> str | None:
        """The name of the leaf this plan node reads, if it reads one."""
        if plan.getClass().getSimpleName() != "RDDScanExec":
            return None
        return self._names.get(plan.rdd().id())

    def use(self, leaf: str, output: list[Any], wanted: set[int] | None) -> None:
        for position, attribute in enumerate(output):
            if wanted is None or attribute.exprId().id() in wanted:
                self._used[leaf].add(position)

    def columns(self, leaf: str) -> list[int]:
        return sorted(self._used[leaf]) or [0]  # a row needs a column to be counted by


# Nodes that hand on what they get, column by column.
_PASS_THROUGH = ("WholeStageCodegenExec", "InputAdapter", "CoalesceExec")


class _PlanNode:
    """The shape of the physical plan, read once so that an execution makes few JVM calls."""

    def __init__(
        self, plan: Any, leaf: str | None, children: list[_PlanNode], used: _UsedColumns, nil: Any
    ) -> None:
        self._plan = plan
        self._leaf = leaf
        self._children = children
        self._used = used
        self._nil = nil
        self._scan: list[Any] = []

    @classmethod
    def of(cls, plan: Any, used: _UsedColumns, wanted: set[int] | None, nil: Any) -> _PlanNode:
        """``wanted``: the attributes somebody above looks at; None means all of them."""
        leaf = used.leaf(plan)
        if leaf is not None:
            used.use(leaf, _items(plan.output()), wanted)
            return cls(plan, leaf, [], used, nil)
        kind = plan.getClass().getSimpleName()
        if kind == "ProjectExec":
            wanted = _references(plan)
        elif kind == "FilterExec" and wanted is not None:
            wanted = wanted | _references(plan)
        elif kind not in _PASS_THROUGH:
            wanted = None
        below = [cls.of(child, used, wanted, nil) for child in _items(plan.children())]
        return cls(plan, None, below, used, nil)

    def _narrow_scan(self) -> list[Any]:
        """The parts of a copy of this leaf, with only the columns the plan uses."""
        if not self._scan and self._leaf is not None:
            plan, output = self._plan, _items(self._plan.output())
            columns = self._nil
            for position in reversed(self._used.columns(self._leaf)):
                columns = columns.prepended(output[position])
            self._scan = [columns, plan.name(), plan.outputPartitioning()]
            self._scan += [plan.outputOrdering(), plan.stream()]
        return self._scan

    def instantiate(self, rdds: Mapping[str, Any]) -> Any:
        """A fresh copy of the plan from here down: Spark caches RDDs inside plan nodes."""
        if self._leaf is not None:
            output, name, partitioning, ordering, stream = self._narrow_scan()
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


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _references(plan: Any) -> set[int]:
    return {attribute.exprId().id() for attribute in _items(plan.references().toSeq())}


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm


def _leaf_rdd(dataset: Any) -> Any:
    return dataset.logicalPlan().rdd()
