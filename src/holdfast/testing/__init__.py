"""Helpers to test networks: buckets from plain data, runs over any split, and an oracle.

    engine = Engine(network)
    readings = tuples(engine, "load", [(1, "a", 0.5), (3, "b", 0.7)])
    for cuts, groups in ((0, 10), None), ((0, 2, 4, 10), [2, 1]):
        outputs = run(engine, split({"load": readings}, cuts), groups)

Tuple times are microseconds. ``same_bytes`` compares two runs bit for bit, order included;
``same_rows`` compares a run with the oracle: the same query as one batch Spark job. ``scripted``
makes sources that crash and pause where the data says.
"""

from holdfast.testing.buckets import run, split, tuples
from holdfast.testing.compare import ipc_bytes, plain_rows, same_bytes, same_rows
from holdfast.testing.oracle import OracleStream
from holdfast.testing.oracle_aggregates import (
    first_in_order,
    last_in_order,
    list_in_order,
    mean_exactly,
    set_in_order,
    spread_exactly,
    sum_exactly,
    top_in_order,
)
from holdfast.testing.scripted import Crash, Pause, SourceCrashed, scripted

__all__ = [
    "Crash",
    "OracleStream",
    "Pause",
    "SourceCrashed",
    "first_in_order",
    "ipc_bytes",
    "last_in_order",
    "list_in_order",
    "mean_exactly",
    "plain_rows",
    "run",
    "same_bytes",
    "same_rows",
    "scripted",
    "set_in_order",
    "split",
    "spread_exactly",
    "sum_exactly",
    "top_in_order",
    "tuples",
]
