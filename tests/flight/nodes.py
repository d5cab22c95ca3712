"""An entry point in this process, for tests of the transport."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from holdfast.client import Client, View
from holdfast.clock import Clock
from holdfast.core.entry import EntrySettings
from holdfast.core.records import Membership
from holdfast.core.settings import Bound
from holdfast.flight.security import Security
from holdfast.nodes.entry_node import EntryNode
from holdfast.nodes.hosted import Place
from holdfast.operators import SourceOperator
from holdfast.spark.engine import input_schema

COLUMNS = StructType([StructField("number", LongType()), StructField("text", StringType())])
LOAD = SourceOperator("load", "source 'load'", (), COLUMNS, "main", None, ())


def fail(error: BaseException) -> None:
    raise AssertionError("a node broke") from error


def make_entry(
    directory: Path,
    security: Security | None = None,
    port: int = 0,
    host: str = "127.0.0.1",
    operator: SourceOperator = LOAD,
    consumers: tuple[str, ...] = ("reader",),
    clock: Clock | None = None,
    chaos: bool = True,
    membership: Callable[[], Membership] = Membership,
    bound: Bound | None = None,
) -> EntryNode:
    return EntryNode(
        EntrySettings("entry-load", "load", consumers, boundary_interval_us=20_000, bound=bound),
        operator.declaration,
        input_schema(operator),
        None,
        200_000,
        directory,
        Place(
            host, port, {}, security or Security(), clock or Clock(), chaos, membership=membership
        ),
        fail,
    )


@contextmanager
def entry_point(
    directory: Path, security: Security | None = None, port: int = 0, chaos: bool = True
) -> Iterator[EntryNode]:
    """A running entry point of the stream "load"."""
    node = make_entry(directory, security, port, chaos=chaos)
    node.start()
    try:
        yield node
    finally:
        node.stop()


def location(node: EntryNode) -> str:
    return node.place.security.location("127.0.0.1", node.port)


def numbers(first: int, count: int) -> pa.Table:
    listed = list(range(first, first + count))
    return pa.table({"number": listed, "text": [f"tuple {each}" for each in listed]})


def read_until(client: Client, next_id: int, timeout_s: float) -> View:
    """Read until the stable stream has ``next_id`` tuples; TimeoutError if it does not."""
    view = View()
    deadline = time.monotonic() + timeout_s
    while client.next_id < next_id:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{client.stream}: {client.next_id} of {next_id} tuples came")
        event = client.read(timeout_s=min(left, 1.0))
        if event is not None:
            view.apply(event)
    return view
