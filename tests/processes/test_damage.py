"""A log that was damaged while its process was down: named, and the rest goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.cluster.children import Children
from holdfast.cluster.status import node_status
from holdfast.deployment import Deployment
from holdfast.plans.addresses import Addresses
from holdfast.producer import Producer
from tests.flight.nodes import numbers
from tests.processes.planned import planned

DEPLOYMENT = """
network = "network.py"
[sources.left]
[sources.right]
[fragments.main]
"""
ENTRIES = ("entry-left", "entry-right")


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    found = planned(tmp_path, DEPLOYMENT)
    Addresses.choose(found)
    return found


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def send(deployment: Deployment, source: str, first: int) -> int:
    """Ten more tuples; how many the entry point has."""
    with Producer.of(deployment.path, source, name="p") as producer:
        producer.send(numbers(first, 10))
        return producer.flush()


def flip(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)


def test_a_damaged_log_is_named_and_the_rest_goes_on(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    children = Children(deployment, ENTRIES, lambda text: None)
    children.start()
    for first in range(0, 50, 10):
        assert [send(deployment, each, first) for each in ("left", "right")] == [first + 10] * 2
    children.stop()
    (segment,) = (deployment.data / "processes" / "entry-left").glob("streams/left/*.seg")
    flip(segment)
    children = Children(deployment, ENTRIES, lambda text: None)
    children.start()
    try:

        def is_named() -> bool:
            children.watch()
            return f"{segment}: damaged at byte" in str(children["entry-left"].problem)

        def is_up() -> bool:
            children.watch()
            return "error" not in node_status(deployment, ["entry-left"])["entry-left"]

        wait(is_named)
        assert send(deployment, "right", 50) == 60
        assert main(["status", str(deployment.path)]) == 1  # nobody supervises it here
        told = capsys.readouterr().out.splitlines()
        assert any(
            line.startswith("entry-left") and f"{segment}: damaged at byte" in line for line in told
        )
        # Cut, it starts again, and goes on with what is left.
        assert main(["log", "repair", "--yes", str(segment.parent)]) == 0
        wait(is_up)
        with Producer.of(deployment.path, "left", name="q") as producer:
            producer.send(numbers(0, 10))
            assert producer.flush() == 10
    finally:
        children.stop()
