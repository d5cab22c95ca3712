"""Holdfast: stream processing on Spark that keeps answering while parts of it fail."""

from holdfast.aggregates import Aggregator, aggregate
from holdfast.client import Client, View
from holdfast.connect.callback_sink import call
from holdfast.connect.console_sink import write_console
from holdfast.connect.csv_source import read_csv
from holdfast.connect.directory_source import read_directory
from holdfast.connect.generator_source import generate, rate
from holdfast.connect.jsonl_sink import write_jsonl
from holdfast.connect.jsonl_source import read_jsonl
from holdfast.connect.parquet_sink import write_parquet
from holdfast.connect.parquet_source import read_parquet
from holdfast.connect.socket_source import read_socket
from holdfast.errors import HoldfastError, InputError, NetworkError, StateError
from holdfast.network import Network
from holdfast.producer import Producer
from holdfast.runtime.reports import RunSummary
from holdfast.runtime.run import run
from holdfast.stream import Stream
from holdfast.windows import count_window, session_window, window

__version__ = "0.1.0"

__all__ = [
    "Aggregator",
    "Client",
    "HoldfastError",
    "InputError",
    "Network",
    "NetworkError",
    "Producer",
    "RunSummary",
    "StateError",
    "Stream",
    "View",
    "aggregate",
    "call",
    "count_window",
    "generate",
    "rate",
    "read_csv",
    "read_directory",
    "read_jsonl",
    "read_parquet",
    "read_socket",
    "run",
    "session_window",
    "window",
    "write_console",
    "write_jsonl",
    "write_parquet",
]
