"""Which parts of a query the state of its operators is of."""

from __future__ import annotations

import pytest

from holdfast.cluster.keep_state import Parts

BEFORE = (
    "bucket: 200000 us",
    "load: source with stime None, key None",
    "load: columns k bigint, v double",
    "filter_1: from load",
    "filter_1: Filter (v#1 > 0.0)",
    "filter_1: columns k bigint, v double",
    "aggregate_1: Aggregate from filter_1",
    "aggregate_1: window=TimeWindow(size=2000000, advance=2000000)",
    "aggregate_1: columns k bigint, v double",
    "filter_2: from aggregate_1",
    "filter_2: Filter (v#1 > 5.0)",
    "filter_2: columns k bigint, v double",
    "output found: filter_2",
)


def changed(old: str, new: str) -> Parts:
    text = "\n".join(BEFORE)
    assert old in text
    return Parts(text.replace(old, new).splitlines())


@pytest.mark.parametrize(
    ("old", "new", "above"),
    [
        ("5.0", "6.0", False),
        ("output found: filter_2", "output found: aggregate_1", False),
        ("v#1 > 0.0", "v#1 > 1.0", True),
        ("Aggregate from filter_1", "Aggregate from load", True),
    ],
    ids=["below", "output", "above", "removed"],
)
def test_what_is_stateless_may_change(old: str, new: str, above: bool) -> None:
    were, are = Parts(BEFORE), changed(old, new)
    assert were.of_state() == are.of_state()
    assert (were.above("aggregate_1") != are.above("aggregate_1")) is above


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("size=2000000", "size=1000000", "aggregate_1: window=TimeWindow(size=1000000"),
        ("bucket: 200000", "bucket: 100000", "bucket: 100000 us"),
        ("aggregate_1:", "aggregate_2:", "aggregate_2: Aggregate"),
        ("filter_1: from load", "filter_1: from other", "input 1 comes from other"),
        ("load: columns k bigint", "load: columns k int", "load: columns k int"),
    ],
    ids=["window", "bucket", "name", "source", "columns"],
)
def test_what_the_state_is_of_may_not(old: str, new: str, line: str) -> None:
    were, are = Parts(BEFORE).of_state(), changed(old, new).of_state()
    assert were != are
    assert any(line in each for each in are)
