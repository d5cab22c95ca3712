"""Expressions that only Spark can compute, as columns that it adds to a stream.

Where workers know all of a plan but some expressions, they run it, and each of these expressions
is one more column of the stream that lies below. Spark's JVM computes it row by row, from the
columns that it looks at, and once, however many parts of the network read it. So what is behind it
needs no JVM, and nothing else becomes a row.

Of what may fail Spark is not asked for more than the whole plan would have asked it for. For rows
that filters below keep back it is null. It is taken as a whole where Spark may leave a part of it
out: in a choice, or behind an operand that is null. And if a filter lies above, all is left to
Spark. What never fails (``_never_fails``) is computed for all rows, and shared by all that read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import _parse_datatype_json_string

from holdfast.arrow_types import arrow_type
from holdfast.spark.column_plans import ColumnPlan, Filter, Project, Scan, Wider
from holdfast.spark.expressions import Attribute, Expression
from holdfast.spark.translation import NotTranslatable, Reader, items

# The stream and the expression over its columns, with the number of the column.
Added = dict[tuple[str, Any], int]
# What Spark computes all operands of; elsewhere a null spares it those that follow.
_OF_ALL = ("XxHash64", "Greatest")
# What gives a value or null, whatever it is given.
_SAFE = frozenset(
    [
        *("AttributeReference", "Literal", "Alias", "Upper", "Lower", "Length", "Substring"),
        *("StringTrim", "StringTrimLeft", "StringTrimRight", "StartsWith", "EndsWith", "Contains"),
        *("And", "Or", "Not", "IsNull", "IsNotNull", "Coalesce", "If", "CaseWhen", "In", "InSet"),
        *("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan"),
        *("GreaterThanOrEqual", "Year", "Month", "DayOfMonth", "Hour", "Minute", "Second"),
    ]
)
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
# So large an expression is not put together: columns of columns can double with every step.
_MOST_NODES = 500


def added_stream(stream: str) -> str:
    """The stream of the columns that are added to another one."""
    return f"{stream}+"


def translate_adding(
    frame: DataFrame, leaves: Mapping[str, DataFrame], numbers: Mapping[int, str], added: Added
) -> ColumnPlan | None:
    """The frame's plan over its leaves and over columns ``added`` to them, to which it adds.

    ``numbers``: the leaves by the numbers of their RDDs. None if all of it is left to Spark.
    """
    wanted = dict(added)
    try:
        plan = _AddingReader(frame, leaves, numbers, wanted).whole()
    except NotTranslatable:
        return None
    added.update(wanted)
    return plan


def added_frames(leaves: Mapping[str, DataFrame], added: Added) -> dict[str, DataFrame]:
    """What Spark computes for each stream to which columns are added; a column's name is its
    number.
    """
    columns: dict[str, list[Column]] = {}
    for (stream, expression), number in added.items():
        jvm: Any = leaves[stream].sparkSession._jvm
        made = jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression)
        columns.setdefault(stream, []).append(Column(made).alias(str(number)))
    return {stream: leaves[stream].select(*each) for stream, each in columns.items()}


class _AddingReader(Reader):
    def __init__(
        self,
        frame: DataFrame,
        leaves: Mapping[str, DataFrame],
        numbers: Mapping[int, str],
        added: Added,
    ) -> None:
        super().__init__(frame, numbers)
        self._frames = leaves
        self._added = added
        jvm: Any = frame.sparkSession._jvm
        self._catalyst = jvm.org.apache.spark.sql.catalyst.expressions
        self._nil = jvm.PythonUtils.toSeq(jvm.java.util.ArrayList())
        # What the expressions at hand are over, and the columns that were added for them.
        self._below: Any = None
        self._used: set[int] = set()
        # Inside of what Spark may not be asked for: below a filter, behind what may be null.
        self._filters = 0
        self._skipped = 0

    def plan(self, node: Any) -> ColumnPlan:
        kind = node.getClass().getSimpleName()
        if kind not in ("Project", "Filter"):
            return super().plan(node)
        self._filters += kind == "Filter"
        below = self.plan(node.child())
        self._filters -= kind == "Filter"
        self._below, self._used = node.child(), set()
        if kind == "Project":
            made = tuple(self._named(each) for each in items(node.projectList()))
            return Project(_with(below, self._used), made)
        condition = self.expression(node.condition())
        kept = Filter(_with(below, self._used), condition)
        if kept.output == below.output:
            return kept
        return Project(kept, tuple((number, Attribute(number)) for number in below.output))

    # -- expressions --------------------------------------------------------------------

    def _named(self, expression: Any) -> tuple[int, Expression]:
        try:
            return super()._named(expression)
        except NotTranslatable:
            if expression.getClass().getSimpleName() != "Alias":
                raise
            return _number(expression), self._add(expression.child())  # a constant

    def expression(self, node: Any) -> Expression:
        before = self._in_case, self._skipped, len(self._guards), len(self._added)
        try:
            return super().expression(node)
        except NotTranslatable:
            self._in_case, self._skipped, guards, added = before
            del self._guards[guards:]
            while len(self._added) > added:
                self._added.popitem()  # of a part of what goes to Spark as a whole
            self._used = {number for number in self._used if -number <= len(self._added)}
            if node.references().isEmpty():
                raise
            if (self._in_case or self._skipped) and not _never_fails(node):
                raise
            return self._add(node)

    def _children(self, node: Any) -> tuple[Expression, ...]:
        of_all = node.getClass().getSimpleName() in _OF_ALL
        before, found = self._skipped, []
        for each in items(node.children()):
            found.append(self.expression(each))
            self._skipped += bool(each.nullable()) and not of_all
        self._skipped = before
        return tuple(found)

    def _lazy_children(self, node: Any) -> tuple[Expression, ...]:
        first, *others = items(node.children())
        found = [self.expression(first)]
        self._in_case += 1
        found += [self.expression(each) for each in others]
        self._in_case -= 1
        return tuple(found)

    def _add(self, node: Any) -> Expression:
        """The column that stands for an expression of the plan below."""
        is_safe = _never_fails(node)
        if self._filters and not is_safe:
            raise NotTranslatable("what a filter above may spare Spark")
        try:
            arrow_type(_parse_datatype_json_string(node.dataType().json()))
        except (PySparkException, ValueError) as error:
            raise NotTranslatable("values that Arrow has not") from error
        where = self._over_stream(node, self._below, spared=False)
        if not is_safe and where not in self._added:  # else it is computed for all rows anyhow
            where = self._over_stream(node, self._below, spared=True)
        number = self._added.setdefault(where, -1 - len(self._added))
        self._used.add(number)
        return Attribute(number)

    def _over_stream(self, expression: Any, plan: Any, spared: bool) -> tuple[str, Any]:
        """The stream below the plan, and the expression over it.

        ``spared``: it is null where a filter says no.
        """
        kind = plan.getClass().getSimpleName()
        if kind == "LogicalRDD":
            stream = self._scan(plan).stream
            own = items(self._frames[stream]._jdf.logicalPlan().output())
            there = zip(items(plan.output()), own, strict=True)
            return stream, self._replaced(expression, {_number(a): b for a, b in there})
        if kind == "Project":
            made = {_number(each): _bare(each) for each in items(plan.projectList())}
            return self._over_stream(self._replaced(expression, made), plan.child(), spared)
        if kind == "Filter":
            if spared:
                nothing = self._catalyst.Literal(None, expression.dataType())
                expression = self._catalyst.If(plan.condition(), expression, nothing)
            return self._over_stream(expression, plan.child(), spared)
        raise NotTranslatable(f"an expression over {kind}")

    def _replaced(self, expression: Any, attributes: Mapping[int, Any]) -> Any:
        """The expression with others in place of attributes."""
        nodes = 0

        def replaced(node: Any) -> Any:
            nonlocal nodes
            nodes += 1
            kind = node.getClass().getSimpleName()
            if kind == "AttributeReference":
                return attributes[_number(node)]
            if nodes > _MOST_NODES or kind.endswith("Subquery"):
                raise NotTranslatable(f"an expression with {kind}")
            children = items(node.children())
            made = [replaced(each) for each in children]
            if all(a is b for a, b in zip(children, made, strict=True)):
                return node
            sequence = self._nil
            for each in reversed(made):
                sequence = sequence.prepended(each)
            return node.withNewChildren(sequence)

        return replaced(expression)


def _number(expression: Any) -> int:
    return int(expression.exprId().id())


def _never_fails(node: Any) -> bool:
    kind, children = node.getClass().getSimpleName(), items(node.children())
    kinds = [str(each.dataType().catalogString()) for each in children]
    if kind == "Remainder":
        by = children[1]
        is_zero = by.getClass().getSimpleName() != "Literal" or by.value() in (None, 0)
        safe = kinds[0] in _NUMBERS and not is_zero
    elif kind == "Cast":
        safe = kinds[0] in _NUMBERS and str(node.dataType().catalogString()) == "string"
    elif kind == "Concat":
        safe = set(kinds) == {"string"}
    else:
        safe = kind in _SAFE
    return safe and all(_never_fails(each) for each in children)


def _bare(expression: Any) -> Any:
    is_named = expression.getClass().getSimpleName() == "Alias"
    return expression.child() if is_named else expression


def _with(plan: ColumnPlan, numbers: set[int]) -> ColumnPlan:
    """The plan with columns that are added to the stream below it."""
    if not numbers or isinstance(plan, Wider):
        return plan
    if isinstance(plan, Scan):
        return Wider(plan, added_stream(plan.stream))
    if isinstance(plan, Filter):
        return Filter(_with(plan.below, numbers), plan.condition)
    assert isinstance(plan, Project)
    there = {number for number, _ in plan.columns}
    more = tuple((number, Attribute(number)) for number in sorted(numbers - there))
    return Project(_with(plan.below, numbers), (*plan.columns, *more))
