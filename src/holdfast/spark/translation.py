"""Reads an optimized Spark plan and says how workers can run it on Arrow, if they can.

Only what is known to give Spark's own bits is translated: a closed list of plan nodes and
expressions, over types that Arrow and Spark hold alike. Anything else, be it one function in one
column, leaves the plan to Spark's JVM. Plans are read once, when the network is planned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, _parse_datatype_json_string

from holdfast.arrow_types import arrow_type
from holdfast.hashing import BYTES, NARROW, WIDE
from holdfast.spark.column_plans import ColumnPlan, Filter, Project, Scan, Union
from holdfast.spark.expressions import Attribute, Call, Constant, Expression

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_NUMBERS = (*_WHOLE, "float", "double")
_COMPARED = (*_NUMBERS, "boolean", "date", "timestamp", "string")
_COMPARISONS = {
    "EqualTo": "equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
}
_PLAIN = {"IsNull": "is_null", "IsNotNull": "is_valid", "Not": "not", "And": "and", "Or": "or"}


class NotTranslatable(Exception):
    """The plan has something that only Spark can compute."""


def translate(frame: DataFrame, leaves: Mapping[int, str]) -> ColumnPlan | None:
    """The frame's plan over its leaves, which are told by the numbers of their RDDs; or None."""
    try:
        return Reader(frame, leaves).whole()
    except NotTranslatable:
        return None


class Reader:
    """Reads the plan of one frame."""

    def __init__(self, frame: DataFrame, leaves: Mapping[int, str]) -> None:
        self._frame = frame
        self._leaves = leaves
        self._checked = str(frame.sparkSession.conf.get("spark.sql.ansi.enabled")) == "true"
        # What is known to be larger than a number where a value is taken at all.
        self._guards: list[tuple[Expression, float]] = []
        # Inside of what Spark evaluates only for some rows.
        self._in_case = 0

    # -- plans --------------------------------------------------------------------------

    def whole(self) -> ColumnPlan:
        return self.plan(self._frame._jdf.queryExecution().optimizedPlan())

    def plan(self, node: Any) -> ColumnPlan:
        kind = node.getClass().getSimpleName()
        if kind == "LogicalRDD":
            return self._scan(node)
        if kind == "Project":
            below = self.plan(node.child())
            made = [self._named(each) for each in items(node.projectList())]
            return Project(below, tuple(made))
        if kind == "Filter":
            return Filter(self.plan(node.child()), self.expression(node.condition()))
        if kind == "Union":
            parts = tuple(self.plan(each) for each in items(node.children()))
            output = items(node.output())
            for child in items(node.children()):
                _refuse_other_types(items(child.output()), output)
            kinds = tuple(_arrow(each.dataType()) for each in output)
            return Union(parts, tuple(_number(each) for each in output), kinds)
        raise NotTranslatable(kind)

    def _scan(self, node: Any) -> Scan:
        stream = self._leaves.get(node.rdd().id())
        if stream is None:
            raise NotTranslatable("a relation of the user's own")
        columns = [(_number(each), str(each.name())) for each in items(node.output())]
        return Scan(stream, tuple(columns))

    def _named(self, expression: Any) -> tuple[int, Expression]:
        if expression.getClass().getSimpleName() == "Alias":
            return _number(expression), self.expression(expression.child())
        return _number(expression), self.expression(expression)

    # -- expressions --------------------------------------------------------------------

    def expression(self, node: Any) -> Expression:
        kind = node.getClass().getSimpleName()
        if kind == "AttributeReference":
            return Attribute(_number(node))
        if kind == "Literal":
            return _literal(node)
        if kind == "Alias":
            return self.expression(node.child())
        if kind in _COMPARISONS:
            return self._comparison(kind, node)
        method = getattr(self, f"_{kind}", None)
        if method is not None:
            translated: Expression = method(node)
            return translated
        if kind in _PLAIN:
            return Call(_PLAIN[kind], self._lazy_children(node))
        raise NotTranslatable(kind)

    def _children(self, node: Any) -> tuple[Expression, ...]:
        return tuple(self.expression(each) for each in items(node.children()))

    def _lazy_children(self, node: Any) -> tuple[Expression, ...]:
        self._in_case += 1
        found = self._children(node)
        self._in_case -= 1
        return found

    def _comparison(self, kind: str, node: Any) -> Expression:
        left, right = node.left().dataType(), node.right().dataType()
        name = str(left.catalogString())
        if name not in _COMPARED or str(right.catalogString()) != name:
            raise NotTranslatable(f"{kind} of {name}")
        if name == "boolean" and kind != "EqualTo":
            raise NotTranslatable("the order of booleans")
        return Call(_COMPARISONS[kind], self._children(node))

    def _UnixMicros(self, node: Any) -> Expression:
        return Call("cast", self._children(node), pa.int64())

    def _MicrosToTimestamp(self, node: Any) -> Expression:
        (given,) = self._children(node)
        if str(node.child().dataType().catalogString()) != "bigint":
            given = Call("cast", (given,), pa.int64())
        return Call("cast", (given,), pa.timestamp("us", "UTC"))

    def _XxHash64(self, node: Any) -> Expression:
        for child in items(node.children()):
            if str(child.dataType().catalogString()) not in (*NARROW, *WIDE, *BYTES):
                raise NotTranslatable(f"the hash of {child.dataType().catalogString()}")
        return Call("hash", self._children(node), int(node.seed()))

    def _Cast(self, node: Any) -> Expression:
        before, after = (str(each.dataType().catalogString()) for each in (node.child(), node))
        order = (*_NUMBERS,)
        widens = before in order and after in order and order.index(before) <= order.index(after)
        if not widens and not (before == "boolean" and after in _WHOLE):
            raise NotTranslatable(f"cast from {before} to {after}")
        return Call("cast", self._children(node), _arrow(node.dataType()))

    def _Coalesce(self, node: Any) -> Expression:
        _flat(node)
        return Call("coalesce", self._lazy_children(node))

    def _CreateNamedStruct(self, node: Any) -> Expression:
        children = items(node.children())
        names = tuple(str(each.value().toString()) for each in children[::2])
        return Call("struct", tuple(self.expression(each) for each in children[1::2]), names)

    def _GetStructField(self, node: Any) -> Expression:
        return Call("field", self._children(node), int(node.ordinal()))

    def _CaseWhen(self, node: Any) -> Expression:
        branches = [(each._1(), each._2()) for each in items(node.branches())]
        otherwise = node.elseValue()
        last = otherwise.get() if otherwise.isDefined() else None
        return self._case(node, branches, last)

    def _If(self, node: Any) -> Expression:
        return self._case(node, [(node.predicate(), node.trueValue())], node.falseValue())

    def _case(self, node: Any, branches: list[tuple[Any, Any]], last: Any) -> Expression:
        """All branches are computed for all rows, so none may fail where it is not taken."""
        _flat(node)
        arguments: list[Expression] = []
        self._in_case += 1
        for condition, value in branches:
            test = self.expression(condition)
            guards = [] if len(branches) > 1 else _guards(test)
            self._guards += guards
            arguments += [test, self.expression(value)]
            del self._guards[len(self._guards) - len(guards) :]
        kind = _arrow(node.dataType())
        arguments.append(Constant(None, kind) if last is None else self.expression(last))
        self._in_case -= 1
        return Call("case", tuple(arguments))

    def _arithmetic(self, name: str, node: Any) -> Expression:
        """Whole numbers may overflow, which must fail only where the value is taken."""
        kind = str(node.dataType().catalogString())
        if kind in ("float", "double"):
            return Call(name, self._children(node))
        if kind not in _WHOLE or self._in_case:
            raise NotTranslatable(f"{name} of {kind}")
        return Call(f"{name}_checked" if self._checked else name, self._children(node))

    def _Add(self, node: Any) -> Expression:
        return self._arithmetic("add", node)

    def _Subtract(self, node: Any) -> Expression:
        return self._arithmetic("subtract", node)

    def _Multiply(self, node: Any) -> Expression:
        if str(node.dataType().catalogString()) not in ("float", "double"):
            raise NotTranslatable("a product of whole numbers")
        return Call("multiply", self._children(node))

    def _Divide(self, node: Any) -> Expression:
        """A division by zero fails, so the divisor must be known to be larger than it."""
        over, under = self._children(node)
        if str(node.dataType().catalogString()) != "double" or not self._is_positive(under):
            raise NotTranslatable("a division that may fail")
        return Call("divide", (over, under))

    def _is_positive(self, divisor: Expression) -> bool:
        """Whether a guard says so of the divisor, of what it was cast from, or less a number."""
        for guarded, least in self._guards:
            less = 0.0
            found = divisor
            if isinstance(found, Call) and found.function == "subtract":
                found, number = found.arguments
                less = float(number.value) if isinstance(number, Constant) else math.inf
            if isinstance(found, Call) and found.function == "cast":
                found = found.arguments[0]
            if found == guarded and least >= less >= 0:
                return True
        return False

    def _ShiftLeft(self, node: Any) -> Expression:
        """By a constant: beyond the width of a number Java and Arrow differ."""
        places = self.expression(node.right())
        if not isinstance(places, Constant) or places.value not in range(63):
            raise NotTranslatable("shiftleft by what is no constant")
        if str(node.dataType().catalogString()) != "bigint":
            raise NotTranslatable("shiftleft of a small number")
        return Call(
            "shift_left", (self.expression(node.left()), Constant(places.value, pa.int64()))
        )

    def _BitwiseOr(self, node: Any) -> Expression:
        return Call("bit_or", self._children(node))

    def _BitwiseAnd(self, node: Any) -> Expression:
        return Call("bit_and", self._children(node))

    def _Greatest(self, node: Any) -> Expression:
        children, kind = items(node.children()), str(node.dataType().catalogString())
        if len(children) != 2 or kind not in (*_WHOLE, "double"):
            raise NotTranslatable("greatest")
        return Call("greatest", self._children(node))

    def _IsNaN(self, node: Any) -> Expression:
        return Call("is_nan", self._children(node))

    def _Sqrt(self, node: Any) -> Expression:
        return Call("sqrt", self._children(node))


def _refuse_other_types(columns: list[Any], output: list[Any]) -> None:
    """Spark unites structs by the places of their fields, Arrow casts them by the names."""
    for column, wanted in zip(columns, output, strict=True):
        before, after = (each.dataType().asNullable() for each in (column, wanted))
        if str(before.json()) != str(after.json()):
            raise NotTranslatable(f"{before.catalogString()} united with {after.catalogString()}")


def _guards(test: Expression) -> list[tuple[Expression, float]]:
    if isinstance(test, Call) and test.function == "greater":
        guarded, least = test.arguments
        if isinstance(least, Constant) and isinstance(least.value, int | float):
            return [(guarded, float(least.value))]
    return []


def _flat(node: Any) -> None:
    """Arrow chooses between plain values; what is nested is left to Spark."""
    kind = _arrow(node.dataType())
    if pa.types.is_nested(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        raise NotTranslatable(f"a choice between values of {kind}")


def _literal(node: Any) -> Expression:
    name = str(node.dataType().catalogString())
    value: Any = node.value()
    if value is None:
        return Constant(None, _arrow(node.dataType()))
    if name == "string":
        return Constant(str(value.toString()), pa.string())
    if name not in (*_NUMBERS, "boolean"):
        raise NotTranslatable(f"a constant of {name}")
    if isinstance(value, float) and str(value) == "-0.0":
        raise NotTranslatable("a constant that equals another one")
    if isinstance(value, float) and math.isnan(value):
        return Call("nan", (), _arrow(node.dataType()))  # a constant must equal itself
    return Constant(value, _arrow(node.dataType()))


def _number(expression: Any) -> int:
    return int(expression.exprId().id())


def _arrow(kind: Any) -> pa.DataType:
    parsed: DataType = _parse_datatype_json_string(kind.json())
    return arrow_type(parsed)


def items(sequence: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]
