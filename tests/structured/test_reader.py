"""An output as a stream of Structured Streaming: offsets, batches that come again, changes."""

from __future__ import annotations

from collections import deque

import pyarrow as pa
import pytest

from holdfast.core.frame import Missing, Why
from holdfast.frames import TIME
from holdfast.stream_events import Boundary, ClientEvent, Tuples, Undo
from holdfast.structured.data_source import DataSource
from holdfast.structured.reader import OutputReader

OWN = pa.schema([("number", pa.int64())])
WHY = Why((Missing("load", 7),), 0.5)


class Stream:
    """What a client tells, from an id on."""

    def __init__(self, events: list[ClientEvent], next_id: int) -> None:
        self._events = deque(events)
        self.next_id = next_id
        self.committed: int | None = None
        self.closed = False

    def read(self, timeout_s: float | None = None) -> ClientEvent | None:
        if not self._events:
            return None
        event = self._events.popleft()
        if isinstance(event, Tuples) and event.stable:
            self.next_id = event.first_id + event.table.num_rows
        return event

    def commit(self, next_id: int | None = None) -> None:
        self.committed = next_id

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def tuples(stable: bool, first_id: int, *numbers: int) -> Tuples:
    stimes = pa.array([10 * number for number in numbers]).cast(TIME)
    table = pa.table({"stime": stimes, "number": pa.array(numbers, pa.int64())})
    return Tuples(stable, first_id, table, None if stable else WHY)


def reader(
    monkeypatch: pytest.MonkeyPatch,
    events: list[ClientEvent],
    tentative: bool = False,
    most: int = 100,
) -> tuple[OutputReader, list[tuple[str, Stream]]]:
    made = OutputReader("deployment.toml", "out", "spark", OWN, tentative, most)
    opened: list[tuple[str, Stream]] = []

    def open_stream(self: OutputReader, name: str, next_id: int) -> Stream:
        opened.append((name, Stream(events, next_id)))
        return opened[-1][1]

    monkeypatch.setattr(OutputReader, "_open", open_stream)
    return made, opened


def rows(batches: object) -> list[dict[str, object]]:
    assert hasattr(batches, "__iter__")
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_batch_is_what_has_come_and_its_end_is_the_next_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[ClientEvent] = [
        tuples(True, 0, 1, 2),
        Boundary(50),
        tuples(False, 2, 3),
        tuples(True, 2, 3),
    ]
    made, opened = reader(monkeypatch, events)
    batches, end = made.read(made.initialOffset())
    found = rows(batches)
    assert [(row["seq"], row["number"]) for row in found] == [(0, 1), (1, 2), (2, 3)]
    assert end["next_id"] == 3
    made.commit(end)
    assert opened[0][1].committed == 3
    nothing, same = made.read(end)
    assert rows(nothing) == []
    assert same == end
    assert len(opened) == 1


def test_a_batch_has_no_more_than_was_asked_for_and_one_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, _ = reader(monkeypatch, [tuples(True, 0, 1, 2), tuples(True, 2, 3)], most=2)
    batches, end = made.read(made.initialOffset())
    assert len(rows(batches)) == 2
    assert end["next_id"] == 2


def test_a_batch_that_comes_again_ends_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    made, opened = reader(monkeypatch, [tuples(True, 4, 1, 2, 3), tuples(True, 7, 4)])
    start = {"next_id": 4, "turn": 1, "tentative_until": 0}
    end = {"next_id": 6, "turn": 2, "tentative_until": 0}
    found = rows(made.readBetweenOffsets(start, end))
    assert [row["seq"] for row in found] == [4, 5]
    (name, stream) = opened[0]
    assert (name, stream.closed) == ("spark-again", True)


def test_a_query_that_goes_on_opens_the_stream_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, opened = reader(monkeypatch, [tuples(True, 9, 1)])
    _, end = made.read({"next_id": 9, "turn": 3, "tentative_until": 0})
    assert opened[0][1].next_id == 10
    assert end == {"next_id": 10, "turn": 4, "tentative_until": 0}


def test_tentative_rows_and_what_takes_them_back(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[ClientEvent] = [
        tuples(True, 0, 1),
        tuples(False, 1, 2),
        Undo(21),
        tuples(True, 1, 2),
    ]
    made, _ = reader(monkeypatch, events, tentative=True)
    batches, end = made.read(made.initialOffset())
    found = rows(batches)
    assert [row["change"] for row in found] == ["stable", "tentative", "undo", "stable"]
    assert [row["seq"] for row in found] == [0, None, None, 1]
    why = found[1]["why"]
    assert isinstance(why, dict)
    assert why["missing"][0]["stream"] == "load"
    assert end["tentative_until"] == 0


def test_a_query_that_restarts_first_takes_back_what_was_tentative(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, _ = reader(monkeypatch, [tuples(False, 1, 2)], tentative=True)
    _, end = made.read({"next_id": 1, "turn": 0, "tentative_until": 0})
    assert end["tentative_until"] == 21
    later, _ = reader(monkeypatch, [tuples(True, 1, 2)], tentative=True)
    batches, _ = later.read(end)
    assert [row["change"] for row in rows(batches)] == ["undo", "stable"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"deployment": "d.toml", "output": "o"}, "'client' is missing"),
        (
            {"deployment": "d.toml", "output": "o", "client": "c", "tentative": "perhaps"},
            "tentative is true or false",
        ),
        (
            {"deployment": "d.toml", "output": "o", "client": "c", "maxTuplesPerTrigger": "0"},
            "a number from 1 on",
        ),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], says: str) -> None:
    with pytest.raises(Exception, match=says):
        DataSource(options).schema()
