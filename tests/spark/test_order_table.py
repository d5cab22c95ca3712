"""The table of what depends on the order of tuples is that of the code, and lacks nothing."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast
from holdfast import (
    Aggregator,
    Network,
    Stream,
    aggregate,
    count_window,
    session_window,
    top,
    window,
)
from holdfast.grouped import GroupedStream
from holdfast.operators import StatefulOperator
from holdfast.spark.aggregate_functions import _FUNCTIONS

PAGE = Path(__file__).parents[2] / "docs" / "design" / "race.md"
SECOND = window("1 s")
FUNCTIONS = {
    "count": "*",
    **dict.fromkeys(("sum", "avg", "stddev", "min", "max", "first", "last"), "v"),
    **dict.fromkeys(("approx_count_distinct", "collect_list", "collect_set"), "k"),
}


class Longest(Aggregator):
    state_type = result_type = "bigint"

    def reduce(self, values: pa.Array) -> Any:
        return len(values)

    def merge(self, earlier: Any, later: Any) -> Any:
        return earlier + later

    def finish(self, state: Any) -> Any:
        return state


OWN: dict[str, Any] = {
    "holdfast.top": top(2, "v", "k"),
    "holdfast.aggregate": aggregate(Longest(), "v"),
}


def listed() -> dict[str, bool]:
    """What the table has, and whether it depends on the order."""
    text = PAGE.read_text().split("### Which operators depend on order")[1].split("\n\nWhere")[0]
    found: dict[str, bool] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 2 and not cells[0].startswith(("operator", "-")):
            names = re.findall(r"`([^`]+)`", cells[0]) or re.split(r", ", cells[0])
            found |= dict.fromkeys(names, cells[1].startswith("depends"))
    return found


def operators(source: Stream) -> dict[str, Stream]:
    """Every operator with a memory, as a user writes it."""
    grouped, in_time = source.groupBy("k"), source.groupBy(SECOND, "k")
    return {
        "join": source.join(source.selectExpr("k", "v AS w"), "k", within="1 s"),
        "process": grouped.process(lambda key, rows, state: (rows, state), "k bigint", "bigint"),
        "distinct": source.distinct("k", window=SECOND),
        "dropDuplicates": source.dropDuplicates(["k"], window=SECOND),
        "drop_duplicates": source.drop_duplicates(["k"], window=SECOND),
        "time windows": in_time.count(),
        "session windows": source.groupBy(session_window("1 s"), "k").count(),
        "count windows": source.groupBy(count_window(2), "k").count(),
        **{name: in_time.agg(f"{name}({of}) AS found") for name, of in FUNCTIONS.items()},
        **{name: in_time.agg(each.alias("found")) for name, each in OWN.items()},
    }


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> Stream:
    return Network("order", spark=spark).source("s", "k bigint, v double")


def test_the_table_says_what_the_code_does(source: Stream) -> None:
    table = listed()
    for name, stream in operators(source).items():
        operator = stream.operator
        assert isinstance(operator, StatefulOperator), name
        assert table[name] == operator.stateful.depends_on_order, name


# Public methods that are no operators, and those whose parts are in the table by themselves.
MADE = {"groupBy", "groupby", "agg", "output", "fragment", "stateful"}
NO_OPERATORS = {"columns", "schema", "time_columns"}


def test_the_table_has_every_operator(source: Stream) -> None:
    table = listed()
    public = (
        {
            name
            for kind in (Stream, GroupedStream)
            for name, _ in inspect.getmembers(kind)
            if not name.startswith("_")
        }
        - MADE
        - NO_OPERATORS
    )
    assert public <= set(table), "a new one needs a row, and a test of what the row says"
    stateless = public - operators(source).keys()
    assert not any(table[name] for name in stateless)
    assert {*FUNCTIONS, *OWN} <= set(table)


def test_every_aggregate_and_every_window_is_asked_for_here(source: Stream) -> None:
    resolved = set()
    for name, of in FUNCTIONS.items():
        probe = source.template.agg(F.expr(f"{name}({of})"))
        plan: Any = probe._jdf.queryExecution().analyzed()
        expression = plan.aggregateExpressions().apply(0)
        while expression.getClass().getSimpleName() != "AggregateExpression":
            expression = expression.children().apply(0)
        resolved.add(expression.aggregateFunction().getClass().getSimpleName())
    assert resolved == {*_FUNCTIONS}
    own = {f"holdfast.{name}" for name in home("aggregates") if name != "Aggregator"}
    assert own == {*OWN}
    assert home("windows") == {"window", "session_window", "count_window"}


def home(module: str) -> set[str]:
    """The public names that are at home in a module."""
    return {name for name, where in holdfast._HOMES.items() if where == module}
