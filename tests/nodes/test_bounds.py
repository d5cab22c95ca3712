"""An entry point whose log may not grow without end while somebody is away."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.client import Client
from holdfast.core.settings import Bound, Then
from holdfast.deployment import DeploymentError, load_deployment
from holdfast.errors import HoldfastError
from holdfast.nodes import node as nodes
from holdfast.producer import Producer, ProducerError
from tests.flight.nodes import location, make_entry, numbers, read_until

# Away after a moment, and anything is too much.
BLOCK = Bound(1, None, Then.BLOCK, 500_000)


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_source_waits_for_a_client_that_is_away_and_goes_on_when_it_is_back(
    tmp_path: Path,
) -> None:
    node = make_entry(tmp_path, bound=BLOCK)
    node.start()
    try:
        with Producer("load", location(node), name="test") as producer:
            producer.send(numbers(0, 10))
            producer.flush(30.0)
            wait(lambda: bool(node.entry.view().full) and bool(node.status()["problems"]))
            (problem,) = node.status()["problems"]
            assert "for reader, which is away" in problem
            producer.send(numbers(10, 10))
            with pytest.raises(ProducerError, match="has not acknowledged 1 batches"):
                producer.flush(1.0)
            assert node.entry.served.next_id == 10
            with Client("load", {"entry-load": location(node)}, name="reader") as client:
                read_until(client, 20, 30.0)
            producer.flush(30.0)
    finally:
        node.stop()


def test_nothing_older_than_a_bound_is_kept_for_a_client_that_is_away_and_it_is_told(
    tmp_path: Path,
) -> None:
    node = make_entry(tmp_path, bound=Bound(None, 1_000_000, Then.RETIRE, 500_000))
    node.start()
    try:
        with Producer("load", location(node), name="test") as producer:
            producer.send(numbers(0, 10))
            producer.flush(30.0)
            wait(lambda: node.entry.served.first_id == 10)
            told = "load is not kept for reader any more, away for too long"
            wait(lambda: node.status()["problems"] == [told])
            # Nobody waits: the source goes on.
            producer.send(numbers(10, 10))
            producer.flush(30.0)
            wait(lambda: node.entry.served.first_id == 20)
            with (
                Client("load", {"entry-load": location(node)}, name="reader") as client,
                pytest.raises(HoldfastError, match="trimmed"),
            ):
                read_until(client, 20, 30.0)
    finally:
        node.stop()


@pytest.mark.parametrize(
    ("then", "said"), [(Then.RETIRE, "not kept for reader any more"), (Then.BLOCK, "sources wait")]
)
def test_what_a_look_finds_beyond_a_bound_is_said_by_the_same_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: Then, said: str
) -> None:
    # Whoever is killed before it looks again has let go of tuples, and has said nothing of it.
    monkeypatch.setattr(nodes, "_LOOK_US", 3_600_000_000)
    node = make_entry(tmp_path, bound=Bound(1, None, then, 100_000))
    node.start()
    try:
        with Producer("load", location(node), name="test") as producer:
            producer.send(numbers(0, 10))
            producer.flush(30.0)
            time.sleep(0.2)
            looked = threading.Event()
            node.loop.call(node.look)
            node.loop.call(looked.set)
            assert looked.wait(30.0)
            (problem,) = node.status()["problems"]
            assert said in problem
            wait(lambda: then is Then.BLOCK or node.entry.served.first_id == 10)
    finally:
        node.stop()


def test_everyone_for_whom_nothing_is_kept_any_more_is_told_of_in_the_journal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bound = Bound(1, None, Then.RETIRE, 500_000)
    node = make_entry(tmp_path, consumers=("reader", "other"), bound=bound)
    node.start()
    try:
        with Producer("load", location(node), name="test") as producer:
            producer.send(numbers(0, 10))
            producer.flush(30.0)
            told = "load is not kept for other, reader any more, away for too long"
            wait(lambda: node.status()["problems"] == [told])
    finally:
        node.stop()
    lines = map(json.loads, capfd.readouterr().err.splitlines())
    found = [one for one in lines if one["event"] == "not kept any more"]
    assert {(one["stream"], one["consumer"]) for one in found} == {
        ("load", "other"),
        ("load", "reader"),
    }
    assert len(found) == 2, "each once"


def test_bounds_are_read_from_the_deployment_file(tmp_path: Path) -> None:
    (tmp_path / "network.py").write_text("")
    path = tmp_path / "deployment.toml"
    text = """
network = "network.py"
[fragments.main]
[bounds]
bytes = "1.5 GB"
then = "retire"
[bounds.load]
bytes = 1000
age = "1 day"
[bounds.best]
bytes = "off"
"""
    path.write_text(text)
    bounds = load_deployment(path).bounds
    assert bounds[""] == Bound(1_500_000_000, None, Then.RETIRE)
    assert bounds["load"] == Bound(1_000, 86_400_000_000, Then.RETIRE)
    assert bounds["best"].is_none
    for wrong, why in (
        ('"1.5 GB"', "write it as a number of bytes or as"),
        ('"retire"', "bounds.then"),
    ):
        path.write_text(text.replace(wrong, '"much"'))
        with pytest.raises(DeploymentError, match=why):
            load_deployment(path)
