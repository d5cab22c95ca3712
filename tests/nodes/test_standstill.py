"""A thread that has work and gets no further is told of, without an error of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.connect.callback_sink import call
from holdfast.core.settings import Timing
from holdfast.errors import InputError
from holdfast.flight.security import Security
from holdfast.nodes import standstill
from holdfast.nodes.client_node import ClientNode
from holdfast.nodes.hosted import Place
from holdfast.nodes.intake import Intake
from holdfast.nodes.journal import Journal
from holdfast.nodes.metrics import NodeMetrics, registry
from holdfast.nodes.problems import Problems
from holdfast.nodes.standstill import END_SECONDS, SAY_SECONDS, Standstill, Watched
from holdfast.producer import Producer
from tests.flight.nodes import entry_point, fail, location, numbers

SECONDS = 60.0


def wait(until: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not until():
        assert time.monotonic() < deadline, f"waited for: {what}"
        time.sleep(0.01)


def _wait_for(event: threading.Event) -> None:
    event.wait(SECONDS)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill, "SAY_SECONDS", 0.5)
    monkeypatch.setattr(standstill, "LOOK_SECONDS", 0.1)


def made(name: str, turn: list[object], ends: bool) -> tuple[Standstill, Problems, list[str]]:
    ended: list[str] = []
    problems = Problems(Journal(name), NodeMetrics(name, "entry"))
    watched = Watched("disk", "the disk", lambda: turn[0], ends)
    return Standstill((watched,), problems, lambda error: ended.append(str(error))), problems, ended


def test_who_does_not_go_on_is_told_of_and_ends_the_process_after_long() -> None:
    turn: list[object] = [7]
    watch, problems, ended = made("load-1", turn, ends=True)
    for _ in range(int(SAY_SECONDS)):
        watch.look(1.0)
    assert problems.texts == []
    watch.look(1.0)
    assert problems.blocking == [f"the disk has not gone on for {SAY_SECONDS:.0f} s"]
    labels = {"node": "load-1", "kind": "entry", "problem": "disk"}
    assert registry.get_sample_value("holdfast_problem", labels) == 1
    watch.look(0.0)  # the process itself did not run
    turn[0] = 8
    watch.look(1.0)
    assert problems.texts == []
    for _ in range(int(END_SECONDS) + 5):
        watch.look(1.0)
    assert ended == [f"the disk has not gone on for {END_SECONDS:.0f} s"]


def test_who_has_nothing_to_do_stands_still_too() -> None:
    watch, problems, ended = made("load-2", [None], ends=True)
    for _ in range(2 * int(END_SECONDS)):
        watch.look(1.0)
    assert problems.texts == ended == []


def test_a_disk_that_hangs_is_said_by_an_entry_point(tmp_path: Path, impatient: None) -> None:
    goes_on = threading.Event()
    with entry_point(tmp_path) as node, Producer("load", location(node), name="p") as producer:
        said = f"what is written below {tmp_path} has not gone on"
        node.store.call(lambda: _wait_for(goes_on))
        try:
            producer.send(numbers(0, 3))
            wait(lambda: any(said in text for text in node.health()), "nothing is said")
            assert any(said in text for text in node.status()["problems"])
        finally:
            goes_on.set()
        producer.flush()
        wait(lambda: not any(said in text for text in node.health()), "it is over")


def test_a_sink_that_never_returns_is_said_by_its_client(tmp_path: Path, impatient: None) -> None:
    goes_on, taken = threading.Event(), []

    def stuck(table: pa.Table) -> None:
        taken.append(table.num_rows)
        goes_on.wait(SECONDS)

    with (
        entry_point(tmp_path / "entry") as entry,
        Producer("load", location(entry), name="p") as producer,
    ):
        node = ClientNode(
            "reader", "load", entry.schemas["load"], call(stuck), tmp_path / "reader",
            {"entry-load": location(entry)}, Place("127.0.0.1", 0, {}, Security()), Timing(), fail,
        )  # fmt: skip
        node.start()
        try:
            producer.send(numbers(0, 3))
            wait(lambda: taken, "the sink")
            wait(node.health, "nothing is said")
            assert node.status()["problems"][0].startswith(
                "the sink function stuck has not gone on"
            )
            goes_on.set()
            wait(lambda: not node.health(), "it is over")
        finally:
            goes_on.set()
            node.stop()


def test_a_source_that_cannot_be_read_any_further_is_no_health(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(self: Intake) -> None:
        raise InputError("the topic was deleted")

    monkeypatch.setattr(Intake, "read", gone)
    with entry_point(tmp_path) as node:
        node._reader.start()
        wait(node.health, "nothing is said")
        said = "the source cannot be read any further: the topic was deleted"
        assert node.status()["problems"] == node.health() == [said]
