"""Tuples made in Python at a steady rate, results handed to a Python function."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import holdfast

Int64s = npt.NDArray[np.int64]


def readings(numbers: Int64s, times_us: Int64s) -> pa.Table:
    """Tuple number i is a reading of server i % 3."""
    return pa.table({"server": numbers % 3, "cpu": (numbers % 100) / 100})


def show(results: pa.Table) -> None:
    for row in results.to_pylist():
        print(f"server {row['server']} had {row['count']} readings")


network = holdfast.Network("generated", bucket="200 ms")
# Without a time column, tuples take the time of their arrival.
load = network.source("load", "server bigint, cpu double")
load.groupBy(holdfast.window("500 ms"), "server").count().output("counts")

if __name__ == "__main__":
    sources = {"load": holdfast.rate(3000, readings, count=6000)}
    holdfast.run(network, sources, {"counts": holdfast.call(show)})
