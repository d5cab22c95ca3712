"""Which columns a piece of PySpark code hands on as they are, read from Spark's own plan.

A column is handed on if it is an attribute of an input, under the same name or another; whatever
is computed, be it by a cast, is a new column. In a union a column is what each branch puts there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from pyspark.sql import DataFrame

from holdfast.spark.translation import items

# The inputs, by position, and their columns that a column is; several below a union.
Handed: TypeAlias = frozenset[tuple[int, str]]
# Of a join with a table of the user's: the sides whose columns are never made null by it.
_WHOLE_SIDES = {
    "INNER": (0, 1),
    "CROSS": (0, 1),
    "LEFT OUTER": (0,),
    "RIGHT OUTER": (1,),
    "LEFT SEMI": (0,),
    "LEFT ANTI": (0,),
}


def handed_on(made: DataFrame, inputs: Sequence[DataFrame]) -> dict[str, Handed]:
    """The columns of ``made`` that are columns of ``inputs``, which are leaves of its plan."""
    leaves = {_relation(frame): number for number, frame in enumerate(inputs)}
    plan: Any = made._jdf.queryExecution().analyzed()
    found = _read(plan, leaves)
    named = ((str(each.name()), _number(each)) for each in items(plan.output()))
    return {name: found[number] for name, number in named if number in found}


def _relation(frame: DataFrame) -> int:
    plan: Any = frame._jdf.queryExecution().analyzed()
    return int(plan.rdd().id())


def _read(node: Any, leaves: dict[int, int]) -> dict[int, Handed]:
    """What each attribute that a node gives is, by Spark's number for it."""
    kind = node.getClass().getSimpleName()
    if kind == "LogicalRDD":
        number = leaves.get(int(node.rdd().id()))
        if number is None:
            return {}
        return {_number(each): frozenset([(number, str(each.name()))])
                for each in items(node.output())}  # fmt: skip
    below = [_read(child, leaves) for child in items(node.children())]
    if kind == "Union":
        return _united(node, below)
    if kind == "Join":
        below = [below[side] for side in _WHOLE_SIDES.get(str(node.joinType().sql()), ())]
    found = {number: handed for part in below for number, handed in part.items()}
    if kind == "Project":
        found |= _renamed(node, found)
    return found


def _united(node: Any, below: list[dict[int, Handed]]) -> dict[int, Handed]:
    branches = [[_number(each) for each in items(child.output())]
                for child in items(node.children())]  # fmt: skip
    found = {}
    for position, each in enumerate(items(node.output())):
        parts = [part.get(one[position]) for part, one in zip(below, branches, strict=True)]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            found[_number(each)] = frozenset().union(*known)
    return found


def _renamed(node: Any, below: dict[int, Handed]) -> dict[int, Handed]:
    found = {}
    for each in items(node.projectList()):
        if each.getClass().getSimpleName() != "Alias":
            continue
        inner = each.child()
        if inner.getClass().getSimpleName() == "AttributeReference" and _number(inner) in below:
            found[_number(each)] = below[_number(inner)]
    return found


def _number(expression: Any) -> int:
    return int(expression.exprId().id())
