"""Holdfast: stream processing on Spark that keeps answering while parts of it fail.

A name is imported when it is first used: Spark, Arrow and the rest take seconds, and neither
``holdfast --help`` nor a program that only reads a stream should pay for what it does not use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.aggregates import Aggregator, aggregate, top
    from holdfast.client import Client, RetiredError
    from holdfast.cluster.members import (
        add_replica,
        move_replica,
        remove_replica,
        retire_client,
    )
    from holdfast.cluster.rescaling import rescale
    from holdfast.cluster.rolling import restart_rolling
    from holdfast.connect.callback_sink import call
    from holdfast.connect.console_sink import write_console
    from holdfast.connect.csv_source import read_csv
    from holdfast.connect.delta_sink import write_delta
    from holdfast.connect.directory_source import read_directory
    from holdfast.connect.generator_source import generate, rate
    from holdfast.connect.iceberg_sink import write_iceberg
    from holdfast.connect.jsonl_sink import write_jsonl
    from holdfast.connect.jsonl_source import read_jsonl
    from holdfast.connect.kafka_sink import write_kafka
    from holdfast.connect.kafka_source import read_kafka
    from holdfast.connect.parquet_sink import write_parquet
    from holdfast.connect.parquet_source import read_parquet
    from holdfast.connect.postgres_sink import write_postgres
    from holdfast.connect.socket_source import read_socket
    from holdfast.connect.upsert_sink import write_sqlite
    from holdfast.core.frame import Missing, Why
    from holdfast.errors import HoldfastError, InputError, NetworkError, StateError
    from holdfast.flight.security import Security
    from holdfast.grouped import GroupedStream
    from holdfast.network import Network
    from holdfast.producer import Producer
    from holdfast.single.handle import RunHandle, start
    from holdfast.single.reports import RunSummary
    from holdfast.single.run import run
    from holdfast.stream import Stream
    from holdfast.stream_events import Boundary, ClientEvent, Tuples, Undo, Unordered, View
    from holdfast.structured.data_source import DataSource
    from holdfast.windows import count_window, session_window, window

__version__ = "0.1.0"

# Where each name is at home; the imports above say the same to type checkers.
_HOMES = {
    "Aggregator": "aggregates",
    "Boundary": "stream_events",
    "Client": "client",
    "ClientEvent": "stream_events",
    "DataSource": "structured.data_source",
    "GroupedStream": "grouped",
    "HoldfastError": "errors",
    "InputError": "errors",
    "Missing": "core.frame",
    "Network": "network",
    "NetworkError": "errors",
    "Producer": "producer",
    "RetiredError": "client",
    "RunHandle": "single.handle",
    "RunSummary": "single.reports",
    "Security": "flight.security",
    "StateError": "errors",
    "Stream": "stream",
    "Tuples": "stream_events",
    "Undo": "stream_events",
    "Unordered": "stream_events",
    "View": "stream_events",
    "Why": "core.frame",
    "add_replica": "cluster.members",
    "aggregate": "aggregates",
    "call": "connect.callback_sink",
    "count_window": "windows",
    "generate": "connect.generator_source",
    "move_replica": "cluster.members",
    "rate": "connect.generator_source",
    "read_csv": "connect.csv_source",
    "read_directory": "connect.directory_source",
    "read_jsonl": "connect.jsonl_source",
    "read_kafka": "connect.kafka_source",
    "read_parquet": "connect.parquet_source",
    "read_socket": "connect.socket_source",
    "remove_replica": "cluster.members",
    "rescale": "cluster.rescaling",
    "restart_rolling": "cluster.rolling",
    "retire_client": "cluster.members",
    "run": "single.run",
    "session_window": "windows",
    "start": "single.handle",
    "top": "aggregates",
    "window": "windows",
    "write_console": "connect.console_sink",
    "write_delta": "connect.delta_sink",
    "write_iceberg": "connect.iceberg_sink",
    "write_jsonl": "connect.jsonl_sink",
    "write_kafka": "connect.kafka_sink",
    "write_parquet": "connect.parquet_sink",
    "write_postgres": "connect.postgres_sink",
    "write_sqlite": "connect.upsert_sink",
}

__all__ = [
    "Aggregator",
    "Boundary",
    "Client",
    "ClientEvent",
    "DataSource",
    "GroupedStream",
    "HoldfastError",
    "InputError",
    "Missing",
    "Network",
    "NetworkError",
    "Producer",
    "RetiredError",
    "RunHandle",
    "RunSummary",
    "Security",
    "StateError",
    "Stream",
    "Tuples",
    "Undo",
    "Unordered",
    "View",
    "Why",
    "add_replica",
    "aggregate",
    "call",
    "count_window",
    "generate",
    "move_replica",
    "rate",
    "read_csv",
    "read_directory",
    "read_jsonl",
    "read_kafka",
    "read_parquet",
    "read_socket",
    "remove_replica",
    "rescale",
    "restart_rolling",
    "retire_client",
    "run",
    "session_window",
    "start",
    "top",
    "window",
    "write_console",
    "write_delta",
    "write_iceberg",
    "write_jsonl",
    "write_kafka",
    "write_parquet",
    "write_postgres",
    "write_sqlite",
]


if not TYPE_CHECKING:  # or they would take every name for one of ours

    def __getattr__(name: str) -> Any:
        """Import a name from its home, the first time it is used."""
        if name not in _HOMES:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        found = getattr(import_module(f"holdfast.{_HOMES[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
