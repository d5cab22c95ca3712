"""What Spark made of an operator's expressions, as text that is the same in every process.

The text is that of Spark's analysed plan. Spark numbers expressions in the order in which a process
makes them; here they are numbered in the order in which they appear. The text does not say of what
types literals are (``'null'`` and null look alike), what stands in a table that never changes, and
what a Python function does: each of them gets a line of its own.
"""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.code_digest import code_digest
from holdfast.spark.determinism import items, walk

_FIELDS = "spark.sql.debug.maxToStringFields"
_ID = re.compile(r"#(\d+)")
_LAMBDA = re.compile(r"\blambda \w+#")
_ADDRESS = re.compile(r"@[0-9a-f]{4,8}\b")  # where the JVM has an object
_FUNCTIONS = ("PythonUDF", "PythonUDAF", "PythonUDTF")
# The types whose literals have a text of their own; those of others are in the plan's text.
_ATOMIC = re.compile(
    r"string|char|varchar|boolean|byte|short|integer|long|float|double|decimal|date|time|interval"
)


@contextmanager
def whole_text(spark: SparkSession) -> Iterator[None]:
    """Spark leaves out what is beyond 25 fields unless it is told not to."""
    before = spark.conf.get(_FIELDS)
    spark.conf.set(_FIELDS, str(2**31 - 1))
    try:
        yield
    finally:
        spark.conf.set(_FIELDS, str(before))


def plan_lines(frame: DataFrame, inputs: Sequence[DataFrame]) -> list[str]:
    """The plan of ``frame``; call it within ``whole_text``.

    ``inputs`` are the frames that stand for streams; other tables are part of the query.
    """
    plan: Any = frame._jdf.queryExecution().analyzed()
    lines = [line for line in _numbered(str(plan.toString())).splitlines() if line.strip()]
    nodes = json.loads(plan.toJSON())
    literals = list(_literals(nodes))
    if literals:
        lines.append(f"literals {', '.join(literals)}")
    plans = [plan, *items(plan.subqueriesAll())]
    lines += [line for each in plans for line in _functions(each)]
    streams = [each._jdf.queryExecution().analyzed() for each in inputs]
    lines += [line for each in plans for line in _tables(frame.sparkSession, each, streams)]
    return lines


def steps_above(frame: DataFrame, inputs: Sequence[DataFrame]) -> list[str]:
    """The plan of ``frame`` by names alone, without the frames that stand for streams."""
    streams = {line for each in inputs for line in _named(each)}
    return [line for line in _named(frame) if line not in streams]


def _named(frame: DataFrame) -> list[str]:
    plan: Any = frame._jdf.queryExecution().analyzed()
    lines = _ID.sub("", _numbered(str(plan.toString()))).splitlines()
    return [line.lstrip(" :+-") for line in lines]


def _numbered(text: str) -> str:
    """The text with its expressions numbered in the order in which they appear."""
    numbers: dict[str, int] = {}
    text = _ADDRESS.sub("@", _LAMBDA.sub("lambda #", text))
    return _ID.sub(lambda found: f"#{numbers.setdefault(found[1], len(numbers))}", text)


def _literals(tree: Any) -> Iterator[str]:
    """Every literal of a plan's JSON with its type, in order."""
    if isinstance(tree, list):
        for each in tree:
            yield from _literals(each)
    elif isinstance(tree, dict):
        if str(tree.get("class", "")).endswith(".Literal"):
            kind, value = tree.get("dataType"), tree.get("value")
            atomic = value is None or (isinstance(kind, str) and _ATOMIC.match(kind))
            shown = kind if isinstance(kind, str) else json.dumps(kind, sort_keys=True)
            yield f"{value!r} {shown}" if atomic else str(shown)
        for each in tree.values():
            yield from _literals(each)


# -- Python functions -------------------------------------------------------------------


def _functions(plan: Any) -> Iterator[str]:
    # In the order in which walk() comes to them; asking the JVM for every expression takes long.
    nodes = json.loads(plan.toJSON())
    wanted = [_has_function(each) for each in nodes]
    if not any(wanted):
        return
    for node, has_function in zip(walk(plan), wanted, strict=True):
        if not has_function:
            continue
        for expression in items(node.expressions()):
            for each in walk(expression):
                if each.getClass().getSimpleName() in _FUNCTIONS:
                    digest = code_digest(_loaded(each.func()))
                    yield f"function {each.name()} evaluated as {each.evalType()}, code {digest}"


def _has_function(node: dict[str, Any]) -> bool:
    if node["class"].endswith(".MapInArrow"):
        return False  # a step of the engine's own; its operator tells its settings
    text = json.dumps(node)
    return any(f'.{name}"' in text for name in _FUNCTIONS)


def _loaded(function: Any) -> object:
    """The Python function, with its result type, that Spark has packed."""
    command = function.command()
    # A sequence in Scala, an array before Spark had it so.
    packed = bytes(command if isinstance(command, bytes | bytearray) else command.unsafeArray())
    broadcasts = {each.id(): each for each in function.broadcastVars()}
    loaded = _Unpacker(packed, broadcasts).load()
    # Spark sends a large one as a broadcast.
    return _Unpacker(loaded, broadcasts).load() if isinstance(loaded, bytes) else loaded


class _Unpacker(pickle.Unpickler):
    """Unpacks a function here, in the driver, where broadcasts are files of this process."""

    def __init__(self, packed: bytes, broadcasts: dict[int, Any]) -> None:
        super().__init__(io.BytesIO(packed))
        self._broadcasts = broadcasts

    def find_class(self, module: str, name: str) -> Any:
        if name == "_from_id" and module.startswith("pyspark") and module.endswith(".broadcast"):
            return self._broadcast
        return super().find_class(module, name)

    def _broadcast(self, number: int) -> object:
        with Path(self._broadcasts[number].value().path()).open("rb") as file:
            return pickle.load(file)


# -- tables -----------------------------------------------------------------------------


def _tables(spark: SparkSession, plan: Any, streams: Sequence[Any]) -> Iterator[str]:
    """What stands in the tables of a plan that are no streams."""
    for leaf in items(plan.collectLeaves()):
        if not leaf.output().size() or any(leaf.sameResult(each) for each in streams):
            continue
        made = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, leaf)  # type: ignore[union-attr]
        frame = DataFrame(made, spark)
        table = frame.toDF(*(f"c{index}" for index in range(len(frame.columns))))
        text = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
        # A sum, because a table has no order.
        total = F.sum(F.xxhash64(text).cast("decimal(38,0)"))
        rows, digest = table.select(F.count("*"), total).collect()[0]
        yield f"table {', '.join(frame.columns)}: {rows} rows, digest {digest}"
