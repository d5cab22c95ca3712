"""Refuses expressions whose value differs between replicas or between runs.

Replicas must compute the same bits from the same tuples, and a redo must compute what the
first run would have. ``rand()``, ``uuid()``, ``current_timestamp()`` and their like are
therefore refused when the network is built, with the expression named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from holdfast.errors import NetworkError

# Plan nodes that look at more than one tuple: a stateless function would give another result
# for another split of the stream into buckets.
_STATEFUL_NODES = frozenset(
    (
        "Aggregate",
        "Window",
        "Deduplicate",
        "Distinct",
        "GlobalLimit",
        "LocalLimit",
        "Offset",
        "Tail",
        "Sample",
        "Intersect",
        "Except",
        "DeduplicateWithinWatermark",
        "FlatMapGroupsInPandas",
        "FlatMapGroupsInArrow",
        "FlatMapCoGroupsInPandas",
        "FlatMapCoGroupsInArrow",
        "MapInPandas",
        "MapInArrow",
        "MapPartitions",
    )
)
# Names of things whose value depends on the moment or the machine, although Spark calls most
# of them deterministic within one query.
_CURRENT = frozenset(
    (
        "current_timestamp",
        "current_date",
        "localtimestamp",
        "current_time",
        "now",
        "curdate",
        "current_timezone",
        "current_user",
        "user",
        "session_user",
        "current_database",
        "current_schema",
        "current_catalog",
        "input_file_name",
        "input_file_block_start",
        "input_file_block_length",
        "version",
    )
)


def refuse_nondeterministic(frame: DataFrame, operator: str) -> None:
    """Raise NetworkError if any expression of ``frame``'s plan can differ between runs."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    for node in walk(plan):
        for expression in items(node.expressions()):
            culprit = _culprit(expression)
            if culprit is not None:
                raise NetworkError(
                    f"{operator}: {culprit}() gives another value on every replica and every "
                    f"run; compute it before the source, or use the tuple time column 'stime'"
                )


def refuse_stateful(frame: DataFrame, operator: str) -> None:
    """Raise NetworkError if ``frame``'s plan looks at more than one tuple at a time."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    for node in walk(plan):
        name = node.getClass().getSimpleName()
        if name in _STATEFUL_NODES or (name == "Join" and _joins_itself(node)):
            raise NetworkError(
                f"{operator}: it uses {name}, which looks at several tuples at "
                f"once; use the stream's own groupBy, join, distinct or process for that"
            )


def _joins_itself(join: Any) -> bool:
    """Whether both sides read the stream; a join with a table that never changes may stay."""
    left, right = (list(items(side.collectLeaves())) for side in (join.left(), join.right()))
    return any(mine.sameResult(theirs) for mine in left for theirs in right)


def walk(tree: Any) -> Iterator[Any]:
    """Every node of a Catalyst tree, the root first."""
    yield tree
    for child in items(tree.children()):
        yield from walk(child)


def items(sequence: Any) -> Iterator[Any]:
    """The items of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def _culprit(expression: Any) -> str | None:
    for child in items(expression.children()):
        found = _culprit(child)
        if found is not None:
            return found
    name = str(expression.prettyName()).lower()
    if name in _CURRENT or not expression.deterministic():
        return name
    return None
