"""Which parts of a query the state of its operators is of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.cluster.keep_state import Parts
from holdfast.plans.fragment_plans import DescribedOperator

REST = (
    "bucket: 200000 us",
    "load: source with stime None, key None",
    "load: columns k bigint, v double",
    "output found: filter_2",
)
COLUMNS = "columns k bigint, v double"
WINDOW = "window=TimeWindow(size=2000000, advance=2000000)"
ABOVE = DescribedOperator("filter_1", ("load",), "", ("Filter (v#1 > 0.0)", COLUMNS))
SUMS = DescribedOperator("aggregate_1", ("filter_1",), "Aggregate", (WINDOW, COLUMNS))
BELOW = DescribedOperator("filter_2", ("aggregate_1",), "", ("Filter (v#1 > 5.0)", COLUMNS))


def parts(
    rest: tuple[str, ...] = REST,
    above: DescribedOperator = ABOVE,
    sums: DescribedOperator = SUMS,
    below: DescribedOperator = BELOW,
) -> Parts:
    operators = (above, sums, below)
    lines = [line for one in operators for line in one.text()]
    return Parts((*rest[:-1], *lines, rest[-1]), operators)


@pytest.mark.parametrize(
    ("are", "above"),
    [
        (parts(below=replace(BELOW, lines=("Filter (v#1 > 6.0)", COLUMNS))), False),
        (parts(rest=(*REST[:-1], "output found: aggregate_1")), False),
        (parts(above=replace(ABOVE, lines=("Filter (v#1 > 1.0)", COLUMNS))), True),
        (parts(sums=replace(SUMS, inputs=("load",))), True),
    ],
    ids=["below", "output", "above", "removed"],
)
def test_what_is_stateless_may_change(are: Parts, above: bool) -> None:
    were = parts()
    assert were.of_state() == are.of_state()
    assert (were.above("aggregate_1") != are.above("aggregate_1")) is above


@pytest.mark.parametrize(
    ("are", "line"),
    [
        (
            parts(sums=replace(SUMS, lines=("window=TimeWindow(size=1000000)", COLUMNS))),
            "aggregate_1: window=TimeWindow(size=1000000",
        ),
        (parts(rest=("bucket: 100000 us", *REST[1:])), "bucket: 100000 us"),
        (parts(sums=replace(SUMS, name="aggregate_2")), "aggregate_2: Aggregate"),
        (parts(above=replace(ABOVE, inputs=("other",))), "input 1 comes from other"),
        (
            parts(rest=(*REST[:2], "load: columns k int, v double", REST[-1])),
            "load: columns k int",
        ),
    ],
    ids=["window", "bucket", "name", "source", "columns"],
)
def test_what_the_state_is_of_may_not(are: Parts, line: str) -> None:
    assert parts().of_state() != are.of_state()
    assert any(line in each for each in are.of_state())


def test_an_operator_is_described_line_by_line() -> None:
    assert SUMS.text()[0] == "aggregate_1: Aggregate from filter_1"
    assert ABOVE.text()[:2] == ["filter_1: from load", "filter_1: Filter (v#1 > 0.0)"]
