"""A client with a sink hands on what happens to its stream, and says how it stands."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from holdfast.connect.jsonl_sink import write_jsonl
from holdfast.core.frame import Missing, Why
from holdfast.core.settings import Timing
from holdfast.flight.security import Security
from holdfast.frames import STIME, TIME, TMAX
from holdfast.nodes import client_node
from holdfast.nodes.client_node import ClientNode
from holdfast.nodes.hosted import Place
from holdfast.stream_events import Boundary, ClientEvent, Tuples, Undo

SCHEMA = pa.schema([STIME, TMAX, pa.field("number", pa.int64())])
WHY = Why((Missing("load", 1_000_000),), 0.5)


def tuples(stable: bool, first_id: int, *seconds: int) -> Tuples:
    at = pa.array([each * 1_000_000 for each in seconds]).cast(TIME)
    table = pa.table([at, at, pa.array(seconds, pa.int64())], schema=SCHEMA)
    return Tuples(stable, first_id, table, None if stable else WHY)


EVENTS: list[ClientEvent] = [
    tuples(True, 0, 1),
    Boundary(2_000_000),
    tuples(False, 1, 2, 3),
    Undo(3_000_000),
    tuples(True, 1, 2),
]


def told(tmp_path: Path, tentative: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What is in the file after the events, and the status."""
    path = tmp_path / f"{tentative}.jsonl"
    node = ClientNode(
        "reader", "busy", SCHEMA, write_jsonl(path, tentative=tentative), tmp_path / f"{tentative}",
        {"main-1": "grpc://127.0.0.1:1"}, Place("127.0.0.1", 0, {}, Security()), Timing(), print,
    )  # fmt: skip
    try:
        for event in EVENTS:
            node._take(event)
        assert node._flush()
        return [json.loads(line) for line in path.read_text().splitlines()], node.status()
    finally:
        node._client.close()
        node._writer.close()


def test_a_sink_that_takes_tentative_tuples_is_told_everything(tmp_path: Path) -> None:
    rows, status = told(tmp_path, tentative=True)
    assert [(row["change"], row["number"]) for row in rows] == [
        ("stable", 1),
        ("tentative", 2),
        ("tentative", 3),
        ("undo", None),
        ("stable", 2),
    ]
    assert status["state"] == "tentative", "what is of second 3 stands"
    assert status["tentative"] == {"busy": {"missing": {"load": 1_000_000}, "share": 0.5}}


def test_any_other_sink_has_stable_tuples_only(tmp_path: Path) -> None:
    rows, status = told(tmp_path, tentative=False)
    assert [(row["seq"], row["number"]) for row in rows] == [(0, 1), (1, 2)]
    assert status["state"] == "tentative"
    saved = json.loads((tmp_path / "False" / "position.json").read_text())
    assert saved["since"] == 2_000_001, "the boundary is behind its newest tuple"


class Scripted:
    """A client whose events come at given moments, a clock that reading moves, and flushes."""

    def __init__(self, node: ClientNode, moments: list[float], flush_seconds: float) -> None:
        self.now = 0.0
        # When each flush began, and how many events it had.
        self.flushes: list[tuple[float, int]] = []
        self._node, self._moments = node, moments
        self._flush_seconds = flush_seconds
        self._taken = self._flushed = 0

    @property
    def waiting(self) -> int:
        return sum(moment <= self.now for moment in self._moments)

    def read(self, timeout_s: float) -> ClientEvent | None:
        if self._moments and self._moments[0] <= self.now + timeout_s:
            self.now = max(self.now, self._moments.pop(0))
            self._taken += 1
            return tuples(True, self._taken - 1, 1)
        self.now += timeout_s
        if not self._moments and self._taken == self._flushed:
            self._node._stopping.set()
        return None

    def flush(self) -> bool:
        self.flushes.append((round(self.now, 3), self._taken - self._flushed))
        self._flushed = self._taken
        self._node._writer.flush()
        self.now += self._flush_seconds
        return True


def flushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moments: list[float], flush_seconds: float
) -> list[tuple[float, int]]:
    """Of a client that is to flush every 50 ms, when flushing takes so long."""
    failed: list[BaseException] = []
    node = ClientNode(
        "reader", "busy", SCHEMA, write_jsonl(tmp_path / "out.jsonl"), tmp_path / "reader",
        {"main-1": "grpc://127.0.0.1:1"}, Place("127.0.0.1", 0, {}, Security()), Timing(),
        failed.append,
    )  # fmt: skip
    node._client.close()
    script = Scripted(node, [*moments], flush_seconds)
    monkeypatch.setattr(node, "_client", script)
    monkeypatch.setattr(node, "_flush", script.flush)
    monkeypatch.setattr(node, "_flush_seconds", 0.05)
    monkeypatch.setattr(client_node, "time", SimpleNamespace(monotonic=lambda: script.now))
    node._run()
    node._writer.close()
    assert not failed
    return script.flushes


def test_tuples_wait_for_a_flush_no_longer_than_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes to flush, and though nothing comes in the moment that it is due."""
    moments = [0.001 + number * 0.03 for number in range(6)]
    found = flushes(tmp_path, monkeypatch, moments, flush_seconds=0.015)
    assert [at for at, _ in found] == [0.05, 0.1, 0.15, 0.2]
    assert sum(count for _, count in found) == len(moments)


def test_who_is_behind_flushes_much_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = flushes(tmp_path, monkeypatch, [0.0] * 1000, flush_seconds=0.2)
    assert found == [(0.05, 1000)]
    coming = [number * 0.001 for number in range(1000)]
    found = flushes(tmp_path, monkeypatch, coming, flush_seconds=0.2)
    assert sum(count for _, count in found) == 1000
    assert len(found) <= 6
