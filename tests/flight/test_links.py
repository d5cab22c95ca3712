"""A link that is cut carries nothing, old connections and new, and loses nothing when it heals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.flight as flight
import pytest

from holdfast.client import Boundary, Client, Tuples
from holdfast.flight import peers
from holdfast.flight.links import Links
from holdfast.flight.security import Security
from holdfast.nodes.entry_node import EntryNode
from holdfast.producer import Producer, ProducerError
from tests.flight.nodes import entry_point, location, numbers, read_until

SILENCE_SECONDS = 0.3


def reader_of(node: EntryNode) -> Client:
    return Client("load", {"entry-load": location(node)}, name="reader")


def is_silent(client: Client) -> bool:
    """Whether nothing comes, once what was under way has been read."""
    while client.read(0.05) is not None:
        pass
    return client.read(SILENCE_SECONDS) is None


@pytest.mark.parametrize(
    "end",
    [lambda node, client: (node.links, "reader"), lambda node, client: (client.links, node.name)],
    ids=["provider", "subscriber"],
)
@pytest.mark.parametrize("directions", ["both", "data", "requests"])
def test_a_cut_link_is_silent_and_goes_on_where_it_stood(
    tmp_path: Path, end: Callable[[EntryNode, Client], tuple[Links, str]], directions: str
) -> None:
    with (
        entry_point(tmp_path) as node,
        reader_of(node) as client,
        Producer("load", location(node), name="p") as producer,
    ):
        producer.send(numbers(0, 10))
        first = read_until(client, 10, 20.0).stable
        links, peer = end(node, client)
        at_provider = links is node.links
        data = {"outgoing": at_provider, "incoming": not at_provider}
        requests = {"outgoing": not at_provider, "incoming": at_provider}
        links.cut(peer, **{"both": {}, "data": data, "requests": requests}[directions])
        producer.send(numbers(10, 10))
        assert producer.flush(20.0) == 20
        if directions == "requests":
            # The feed that stands needs no more requests.
            assert any(isinstance(client.read(1.0), Tuples) for _ in range(20))
        else:
            assert is_silent(client)
        links.heal(peer)
        rest = read_until(client, 20, 20.0).stable if client.next_id < 20 else None
        assert first is not None
        assert first["number"].to_pylist() == list(range(10))
        assert rest is None or rest["number"].to_pylist() == list(range(10, 20))


def test_a_new_subscription_waits_for_its_link(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node:
        node.links.cut("reader")
        with reader_of(node) as client:
            assert client.read(SILENCE_SECONDS) is None
            node.links.heal()
            assert isinstance(client.read(10.0), Boundary)


def test_a_cut_producer_is_not_acknowledged_and_its_tuples_are_taken_once(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node, Producer("load", location(node), name="p") as producer:
        producer.send(numbers(0, 5))
        producer.flush()
        node.links.cut("p", incoming=False)  # it is heard, its acknowledgements are lost
        producer.send(numbers(5, 5))
        with pytest.raises(ProducerError, match="has not acknowledged 1 batches"):
            producer.flush(SILENCE_SECONDS)
        node.links.heal("p")
        assert producer.flush() == 10
        assert node.entry.served.next_id == 10


def test_a_call_waits_for_its_link_until_its_deadline(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node:
        node.links.cut("c")
        healing = threading.Timer(0.1, node.links.heal, ["c"])
        healing.start()
        assert peers.call(location(node), Security(), "c", "status")["name"] == "entry-load"
        node.links.cut("c")
        started = time.monotonic()
        with pytest.raises(flight.FlightTimedOutError):
            peers.call(location(node), Security(), "c", "status", timeout_s=0.2)
        assert time.monotonic() - started < 5.0


def test_a_restart_heals_nothing(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node:
        options = {"cut": ["main-1", "main-2"], "outgoing": False}
        cut = peers.call(location(node), Security(), "holdfast", "links", options)
        assert cut == {"incoming": ["main-1", "main-2"], "outgoing": []}
    with entry_point(tmp_path) as node:
        assert node.status()["cut"] == cut
        healed = peers.call(location(node), Security(), "holdfast", "links", {"heal": ["main-1"]})
        assert healed == {"incoming": ["main-2"], "outgoing": []}
        peers.call(location(node), Security(), "holdfast", "links", {"heal": None})
    with entry_point(tmp_path) as node:
        assert node.links.hears("main-2")
