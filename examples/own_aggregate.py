"""An aggregate of your own: the spread between the highest and the lowest value."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import holdfast


class Spread(holdfast.Aggregator):
    """Highest less lowest."""

    state_type = "struct<low: double, high: double>"
    result_type = "double"

    def reduce(self, values: pa.Array) -> Any:
        ends = pc.min_max(values)
        return {"low": ends["min"].as_py(), "high": ends["max"].as_py()}

    def merge(self, earlier: Any, later: Any) -> Any:
        return {
            "low": min(earlier["low"], later["low"]),
            "high": max(earlier["high"], later["high"]),
        }

    def finish(self, state: Any) -> Any:
        return state["high"] - state["low"]


network = holdfast.Network("spread", bucket="1 second")
load = network.source("load", "at timestamp, server string, cpu double", stime="at")
load.groupBy(holdfast.window("20 seconds"), "server").agg(
    holdfast.aggregate(Spread(), "cpu").alias("spread")
).output("spread")

if __name__ == "__main__":
    holdfast.run(network, {"load": holdfast.read_csv("examples/load.csv")})
