"""Holdfast: stream processing on Spark that keeps answering while parts of it fail."""

from holdfast.aggregates import Aggregator, aggregate
from holdfast.errors import HoldfastError, InputError, NetworkError, StateError
from holdfast.network import Network
from holdfast.stream import Stream
from holdfast.windows import count_window, window

__version__ = "0.1.0"

__all__ = [
    "Aggregator",
    "HoldfastError",
    "InputError",
    "Network",
    "NetworkError",
    "StateError",
    "Stream",
    "aggregate",
    "count_window",
    "window",
]
