"""The few expressions that workers compute themselves, on Arrow columns.

Most of what lies between a source and an operator with state, or between that and an output, is
columns renamed, times seen as numbers, a hash, a cast that loses nothing. Their meaning is
Spark's, null for null and bit for bit; whatever is not here runs in Spark's JVM
(``translation`` decides).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.hashing import xxhash64
from holdfast.spark.runs import numbers


class HashedOnce:
    """What is looked up with every bucket, and has much in it: its hash is computed once.

    Of a dataclass, which must say ``__hash__ = HashedOnce.__hash__`` in order to keep it.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, each) for each in self.__dataclass_fields__))

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        """Texts have other hashes in other processes."""
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}


@dataclass(frozen=True)
class Attribute:
    """A column of the rows below, by Spark's number for it."""

    number: int


@dataclass(frozen=True)
class Constant:
    """One value for all rows; ``value`` None is null."""

    value: Any
    kind: pa.DataType


@dataclass(frozen=True)
class Call(HashedOnce):
    """A function of other expressions; ``extra`` is what else it must know."""

    function: str
    arguments: tuple[Expression, ...]
    extra: Any = None

    __hash__ = HashedOnce.__hash__


Expression: TypeAlias = Attribute | Constant | Call


@dataclass
class Rows:
    """Some rows: their number and their columns, and what was computed from them already."""

    count: int
    columns: dict[int, pa.Array]
    _known: dict[Expression, pa.Array] = field(default_factory=dict)

    def evaluate(self, expression: Expression) -> pa.Array:
        """The expression's value for every row; the same one is computed once."""
        if isinstance(expression, Attribute):
            return self.columns[expression.number]
        if expression not in self._known:
            if isinstance(expression, Constant):
                value = pa.scalar(expression.value, expression.kind)
                self._known[expression] = pa.repeat(value, self.count)
            else:
                self._known[expression] = self._call(expression)
        return self._known[expression]

    def _call(self, call: Call) -> pa.Array:
        if call.function == "coalesce" and not self.evaluate(call.arguments[0]).null_count:
            return self.evaluate(call.arguments[0])  # as it mostly is
        arguments = [self.evaluate(each) for each in call.arguments]
        return FUNCTIONS[call.function](self.count, arguments, call.extra)

    def take(self, places: pa.Array, wanted: set[int]) -> Rows:
        """Some of the rows, with the wanted columns."""
        columns = {number: self.columns[number].take(places) for number in wanted}
        return Rows(len(places), columns)


def attributes(expression: Expression) -> set[int]:
    """The columns an expression looks at."""
    if isinstance(expression, Attribute):
        return {expression.number}
    if isinstance(expression, Constant):
        return set()
    return set().union(*(attributes(each) for each in expression.arguments))


_Function = Callable[[int, list[pa.Array], Any], pa.Array]
_TIME, _NUMBER = pa.timestamp("us", "UTC"), pa.int64()


def _cast(_: int, arguments: list[pa.Array], kind: pa.DataType) -> pa.Array:
    """Never loses more than Java's cast does: whole numbers to doubles round to the nearest."""
    given = arguments[0]
    if given.type == kind:
        return given
    if (kind == _NUMBER and given.type == _TIME) or (kind == _TIME and given.type == _NUMBER):
        return given.view(kind)  # a cast looks at every value
    return given.cast(kind, safe=False)


def _hash(count: int, arguments: list[pa.Array], seed: int) -> pa.Array:
    return xxhash64(arguments, seed, count)


def _struct(_: int, arguments: list[pa.Array], names: tuple[str, ...]) -> pa.Array:
    return pa.StructArray.from_arrays(arguments, names=list(names))


def _field(_: int, arguments: list[pa.Array], position: int) -> pa.Array:
    return pc.struct_field(arguments[0], [position])


def _case(count: int, arguments: list[pa.Array], _: None) -> pa.Array:
    """Conditions and values in turn, then what is left otherwise; no condition is ever null."""
    result = arguments[-1]
    for at in range(len(arguments) - 3, -1, -2):
        result = pc.if_else(pc.fill_null(arguments[at], False), arguments[at + 1], result)
    return result


def _compare(name: str) -> _Function:
    """Comparisons in which NaN equals NaN and is larger than everything else."""
    plain = getattr(pc, name)

    def compare(_: int, arguments: list[pa.Array], __: None) -> pa.Array:
        left, right = arguments
        if not pa.types.is_floating(left.type):
            return plain(left, right)
        # NaN counts as 1 beside an ordinary number's 0; the numbers decide where both are alike.
        ranks = [pc.is_nan(each).cast(pa.int8()) for each in (left, right)]
        return pc.if_else(
            pc.or_(pc.is_nan(left), pc.is_nan(right)), plain(*ranks), plain(left, right)
        )

    return compare


def _greatest(_: int, arguments: list[pa.Array], __: None) -> pa.Array:
    """Of two numbers, NaN being the largest and of equals the first; nulls do not count."""
    left, right = arguments
    larger = _compare("greater")(0, [right, left], None)
    chosen = pc.if_else(pc.fill_null(larger, False), right, left)
    return pc.coalesce(chosen, right)


def _is_nan(_: int, arguments: list[pa.Array], __: None) -> pa.Array:
    """Which are; null is none."""
    return pc.fill_null(pc.is_nan(arguments[0]), False)


def _nan(count: int, _: list[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(math.nan, kind), count)


def _simple(function: Callable[..., pa.Array]) -> _Function:
    return lambda _, arguments, __: function(*arguments)


def _divide(_: int, arguments: list[pa.Array], __: None) -> pa.Array:
    with np.errstate(all="ignore"):
        return pc.divide(*arguments)


def _sqrt(_: int, arguments: list[pa.Array], __: None) -> pa.Array:
    """Of a negative number the NaN that the processor gives, and so Java; Arrow's is another."""
    given = arguments[0]
    with np.errstate(invalid="ignore"):
        roots = np.sqrt(numbers(given))
    return pa.array(roots, mask=numbers(given.is_null()) if given.null_count else None)


FUNCTIONS: dict[str, _Function] = {
    "cast": _cast,
    "hash": _hash,
    "struct": _struct,
    "field": _field,
    "case": _case,
    "greatest": _greatest,
    "divide": _divide,
    "is_nan": _is_nan,
    "nan": _nan,
    "is_null": _simple(pc.is_null),
    "is_valid": _simple(pc.is_valid),
    "coalesce": _simple(pc.coalesce),
    "and": _simple(pc.and_kleene),
    "or": _simple(pc.or_kleene),
    "not": _simple(pc.invert),
    "add": _simple(pc.add),
    "subtract": _simple(pc.subtract),
    "multiply": _simple(pc.multiply),
    "add_checked": _simple(pc.add_checked),
    "subtract_checked": _simple(pc.subtract_checked),
    "sqrt": _sqrt,
    "shift_left": _simple(pc.shift_left),
    "bit_or": _simple(pc.bit_wise_or),
    "bit_and": _simple(pc.bit_wise_and),
    **{
        name: _compare(name) for name in ("equal", "less", "less_equal", "greater", "greater_equal")
    },
}
