"""Late rows may take the boundary as their time in front of tumbling windows, nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from holdfast import InputError, Network, Stream, generate, run, window
from holdfast.late_rows import why_late_rows_are_not_taken

Build = Callable[[Stream, Stream], object]


def counted(stream: Stream, size: str, advance: str | None = None) -> Stream:
    return stream.groupBy(window(size, advance), "k").count()


def both(left: Stream, right: Stream) -> None:
    counted(left.filter("v > 0").union(right), "1 s").output("counts")


BUILDS: dict[str, tuple[Build, str | None]] = {
    "tumbling": (both, None),
    "sliding": (lambda left, _: counted(left, "2 s", "1 s").output("o"), "no tumbling window"),
    "join": (
        lambda left, right: left.join(right.select("k"), "k", within="1 s").output("o"),
        "reach 'inner join on k within 1 s', which is no tumbling window",
    ),
    "output": (lambda left, _: left.filter("v > 0").output("o"), "reach the output 'o' without"),
    "distinct": (lambda left, _: left.distinct("k", window=window("1 s")).output("o"), "no tumb"),
}


@pytest.mark.parametrize("name", BUILDS)
def test_where_late_rows_are_taken(spark: SparkSession, name: str) -> None:
    network = Network("late", spark=spark)
    left, right = (network.source(each, "k string, v int") for each in "lr")
    build, words = BUILDS[name]
    build(left, right)
    found = why_late_rows_are_not_taken(network, network.sources["l"])
    if words is None:
        assert found is None
    else:
        assert found is not None
        assert words in found


def test_a_run_refuses_it_too(spark: SparkSession) -> None:
    network = Network("late", spark=spark)
    network.source("l", "at timestamp, k string", stime="at").output("o")
    with pytest.raises(InputError, match="source 'l': late = 'take' is not possible: its tuples"):
        run(network, {"l": generate([], late="take")})
