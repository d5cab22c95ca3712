"""Long links: what is sent takes its time, many messages at once, and none overtakes another."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.client import Client
from holdfast.cluster import chaos
from holdfast.cluster.chaos import ChaosError, delay
from holdfast.deployment import Deployment, DeploymentError, load_deployment
from holdfast.flight import peers
from holdfast.flight.distance import Distance, DistanceError
from holdfast.flight.feeds import Feeds
from holdfast.flight.links import Links
from holdfast.flight.security import Security
from holdfast.flight.wire import decode_metadata
from holdfast.producer import Producer
from tests.flight.nodes import entry_point, location, numbers, read_until
from tests.flight.test_feeds import SCHEMA, Call, message

DELAY_MS = 300.0
MATRIX = """
# one way, in milliseconds
         boston kyoto
boston   0.5    74
kyoto    80     0.5
"""
DEPLOYMENT = """
network = "network.py"
chaos = true
[sources.load]
[fragments.main]
replicas = 2
[clients.reader]
output = "out"
[distances]
matrix = "latencies.txt"
jitter = "5 ms"
bandwidth = 1000
lost_every = "1 minute"
places = { entry-load = "kyoto", main-1 = "boston", main-2 = "kyoto" }
"""


def written(directory: Path, text: str = DEPLOYMENT, matrix: str = MATRIX) -> Deployment:
    (directory / "network.py").write_text("")
    (directory / "latencies.txt").write_text(matrix)
    (directory / "deployment.toml").write_text(text)
    return load_deployment(directory / "deployment.toml")


def test_a_long_link_carries_many_messages_at_once_each_in_its_time(tmp_path: Path) -> None:
    with (
        entry_point(tmp_path) as node,
        Client("load", {"entry-load": location(node)}, name="reader") as client,
        Producer("load", location(node), name="p") as producer,
    ):
        producer.send(numbers(0, 1))
        read_until(client, 1, 20.0)
        node.links.set_distance("reader", Distance(DELAY_MS, jitter_ms=DELAY_MS))
        sent = time.monotonic()
        for number in range(1, 41):
            producer.send(numbers(number, 1))
            producer.flush(20.0)
        read_until(client, 2, 20.0)
        assert time.monotonic() - sent > DELAY_MS / 1e3
        found = read_until(client, 41, 60.0).stable
        # One after the other they would take 40 times as long.
        assert time.monotonic() - sent < 40 * DELAY_MS / 1e3
        assert found is not None
        listed = found["number"].to_pylist()
        assert listed == sorted(listed)
        assert listed[-1] == 40


def test_no_message_of_a_feed_overtakes_another() -> None:
    due = iter([time.monotonic() + 0.2, 0.0, time.monotonic() + 0.1])
    found = Feeds("p", lambda consumer, size: next(due))
    feed = found.open("c", 5, SCHEMA)
    started = time.monotonic()
    for seq in range(3):
        assert found.deliver("c", message(seq, 10))
    batches = feed.batches(Call())
    seqs = [decode_metadata(next(batches)[1])["seq"] for _ in range(6)]
    assert seqs == [0, 0, 1, 1, 2, 2]
    assert time.monotonic() - started >= 0.19


def test_what_does_not_fit_through_a_link_waits_for_what_was_sent_before() -> None:
    links = Links(distances={"far": Distance(50.0, bandwidth=100.0)})
    now = time.monotonic()
    first, second = links.arrival("far", 100 << 10), links.arrival("far", 50 << 10)
    assert first >= now + 1.05
    assert second == pytest.approx(first + 0.5, abs=1e-6)
    assert links.arrival("near", 1 << 30) == 0.0


def test_connections_that_break_are_opened_again_and_nothing_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    with (
        entry_point(tmp_path) as node,
        Client("load", {"entry-load": location(node)}, name="reader") as client,
        Producer("load", location(node), name="p") as producer,
    ):
        producer.send(numbers(0, 1))
        view = read_until(client, 1, 20.0)
        opened: list[int] = []
        assert node.server is not None
        feeds = node.server.feeds
        original = feeds.open

        def noted(consumer: str, feed: int, *more: Any) -> Any:
            opened.append(feed)
            return original(consumer, feed, *more)

        feeds.open = noted  # type: ignore[method-assign,assignment]
        node.links.set_distance("reader", Distance(lost_s=0.1))
        sent, deadline = 1, time.monotonic() + 60.0
        while len(opened) < 3:
            assert time.monotonic() < deadline
            producer.send(numbers(sent, 1))
            producer.flush(20.0)
            sent += 1
            event = client.read(0.05)
            if event is not None:
                view.apply(event)
        node.links.set_distance("reader", Distance())
        while view.stable is None or view.stable.num_rows < sent:
            assert time.monotonic() < deadline
            event = client.read(0.05)
            if event is not None:
                view.apply(event)
        assert view.stable["number"].to_pylist() == list(range(sent))


def test_a_connection_lasts_as_long_as_is_said_on_the_mean() -> None:
    links = Links(distances={"far": Distance(lost_s=10.0)})
    lost = sum(links.is_lost("far", 0.1) for _ in range(100_000))
    assert 800 < lost < 1_200, "one in a hundred tenths of a second"
    assert not any(links.is_lost("near", 1e9) for _ in range(10))


def test_calls_take_their_way_there_and_back(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node:
        node.links.set_distance("c", Distance(200.0))
        started = time.monotonic()
        peers.call(location(node), Security(), "c", "status", timeout_s=20.0)
        assert time.monotonic() - started > 0.2


def test_a_restart_makes_no_link_shorter(tmp_path: Path) -> None:
    options = {"delay": {"main-1": {"delay_ms": 80, "jitter_ms": 5}}, "cut": ["main-2"]}
    with entry_point(tmp_path) as node:
        peers.call(location(node), Security(), "holdfast", "links", options)
        bad = {"delay": {"main-1": {"delay_ms": -1}}}
        with pytest.raises(Exception, match="delay_ms is a number from 0 on, got -1"):
            peers.call(location(node), Security(), "holdfast", "links", bad)
    with entry_point(tmp_path) as node:
        assert node.links.distances == {"main-1": Distance(80.0, 5.0)}
        peers.call(location(node), Security(), "holdfast", "links", {"heal": None})
        assert node.status()["distances_ms"] == {"main-1": 80.0}  # healed is what was cut
        none = {"delay": {"main-1": {"delay_ms": 0}}}
        peers.call(location(node), Security(), "holdfast", "links", none)
        assert node.status()["distances_ms"] == {}


def test_a_deployment_names_places_and_how_far_they_are(tmp_path: Path) -> None:
    distances = written(tmp_path).distances
    assert distances.of("entry-load") == {
        "main-1": Distance(80.0, 5.0, 1000.0, 60.0),
        "main-2": Distance(0.5, 5.0, 1000.0, 60.0),
    }
    assert distances.of("main-1")["main-2"].delay_ms == 74.0
    assert distances.of("reader") == {}


@pytest.mark.parametrize(
    ("text", "matrix", "said"),
    [
        (DEPLOYMENT.replace("true", "false"), MATRIX, "links are made longer on purpose"),
        (DEPLOYMENT.replace("main-2", "main-3"), MATRIX, "there is no node 'main-3'; there are"),
        (DEPLOYMENT.replace('main-2 = "kyoto"', 'main-2 = "lima"'), MATRIX, "'lima' is not in"),
        (DEPLOYMENT.replace("1000", "'much'"), MATRIX, "bandwidth: KiB a second, got 'much'"),
        (DEPLOYMENT, MATRIX.replace("74", "-1"), "from boston to kyoto it is a number of"),
        (DEPLOYMENT, MATRIX.replace("74", ""), "a place and 2 numbers are needed, got 'boston 0"),
        (DEPLOYMENT, "", "latencies.txt has no places; its first line names the places"),
        (DEPLOYMENT, "boston kyoto\nboston 0 1\n", "has no line for kyoto"),
        (DEPLOYMENT.replace("latencies", "far"), MATRIX, "far.txt cannot be read"),
    ],
)
def test_distances_that_cannot_be_meant_are_refused(
    tmp_path: Path, text: str, matrix: str, said: str
) -> None:
    with pytest.raises(DeploymentError, match=said):
        written(tmp_path, text, matrix)


def test_only_links_of_nodes_are_made_longer(tmp_path: Path) -> None:
    deployment = written(tmp_path)
    with pytest.raises(ChaosError, match="there is no node 'main-9'; there are"):
        delay(deployment, "main-1", "main-9", Distance(10.0))
    with pytest.raises(DistanceError, match="at most 10000 ms, got 20000; cut the link instead"):
        Distance(20_000.0)


def test_the_command_tells_both_ends_or_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(written(tmp_path).path)
    told: list[tuple[str, dict[str, Any]]] = []

    def tell(deployment: Deployment, node: str, options: dict[str, Any]) -> bool:
        told.append((node, options["delay"]))
        return node != "main-2"

    monkeypatch.setattr(chaos, "_tell", tell)
    way = {"delay_ms": 80.0, "jitter_ms": 5.0, "bandwidth": 0.0, "lost_s": 2.0}
    more = ["--jitter", "5", "--lost-every", "2"]
    assert main(["chaos", file, "delay", "main-1", "main-2", "80", *more]) == 1
    assert told == [("main-1", {"main-2": way}), ("main-2", {"main-1": way})]
    said = capsys.readouterr().out
    assert "main-1 -- main-2: 80 ms" in said
    assert "main-2 did not answer; say it again when they are up" in said
    told.clear()
    assert main(["chaos", file, "delay", "main-1", "reader", "80", "--one-way"]) == 0
    assert [node for node, _ in told] == ["main-1"]
    assert main(["chaos", file, "delay", "main-1", "main-2", "-1"]) == 1
    assert "delay_ms is a number from 0 on, got -1.0" in capsys.readouterr().err
