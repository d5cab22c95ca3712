"""A node that has stopped leaves nothing behind: neither a call nor a thread in the middle of one.

The interpreter cannot end otherwise: Flight waits for calls under way, and a thread of its own that
wakes up while the interpreter ends, aborts the process.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast.client import Client
from holdfast.nodes.entry_node import EntryNode
from holdfast.producer import Producer
from holdfast.testing.undisturbed import logged_tuples
from tests.flight.nodes import location, make_entry, numbers


def started(directory: Path, port: int = 0) -> EntryNode:
    node = make_entry(directory, port=port)
    node.start()
    return node


def left_behind(before: set[threading.Thread], producer: str) -> list[str]:
    """The threads that have come since and still run, but for those of the producer's own."""
    names = [thread.name for thread in threading.enumerate() if thread not in before]
    # A thread of gRPC that has run Python once is listed for ever.
    return [name for name in names if not name.startswith(("Dummy-", f"producer {producer}"))]


@pytest.mark.parametrize("cut", [False, True], ids=["idle", "cut off"])
def test_calls_of_producers_end_with_the_node_and_go_on_at_the_next(
    cut: bool, tmp_path: Path
) -> None:
    before = set(threading.enumerate())
    node = started(tmp_path)
    with Producer("load", location(node), name="p") as producer:
        producer.send(numbers(0, 3))
        producer.flush(20.0)
        if cut:
            node.links.cut("p")
            producer.send(numbers(3, 3))
        node.stop()
        assert left_behind(before, "p") == []
        again = started(tmp_path, node.port)
        again.links.heal()
        try:
            producer.send(numbers(6, 3))
            producer.flush(60.0)
            producer.close()
        finally:
            again.stop()
    expected = [0, 1, 2, *([3, 4, 5] if cut else []), 6, 7, 8]
    assert logged_tuples(tmp_path / "streams" / "load")["number"].to_pylist() == expected


@pytest.mark.parametrize("cut", [False, True], ids=["idle", "cut off"])
def test_a_client_that_is_closed_leaves_no_thread(cut: bool, tmp_path: Path) -> None:
    node = started(tmp_path)
    try:
        before = set(threading.enumerate())
        client = Client("load", {node.name: location(node)}, name="reader")
        assert client.read(20.0) is not None
        if cut:
            node.links.cut("reader")
        client.close()
        assert left_behind(before, "") == []
    finally:
        node.stop()
