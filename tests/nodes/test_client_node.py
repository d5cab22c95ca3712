"""A client with a sink hands on what happens to its stream, and says how it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.connect.jsonl_sink import write_jsonl
from holdfast.core.frame import Missing, Why
from holdfast.core.settings import Timing
from holdfast.flight.security import Security
from holdfast.frames import STIME, TIME, TMAX
from holdfast.nodes.client_node import ClientNode
from holdfast.nodes.node import Place
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
