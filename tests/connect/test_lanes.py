"""A source with lanes of its own, as a topic has: who is ahead waits for who is behind."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.connect import ingest
from holdfast.connect.source import Chunk, Position, Reader, Source
from tests.connect.support import COLUMNS, SECOND, inlet

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


class LanesReader(Reader):
    """Gives out the rows of each lane in turn, as far as the lane is not held."""

    def __init__(self, rows: dict[str, list[int]]) -> None:
        self.rows = {lane: list(each) for lane, each in rows.items()}
        self.held: Collection[str] = ()

    @property
    def lanes(self) -> Sequence[str]:
        return list(self.rows)

    @property
    def behind(self) -> Collection[str]:
        return [lane for lane, rows in self.rows.items() if rows]

    def hold(self, lanes: Collection[str]) -> None:
        self.held = lanes

    def read(self) -> Chunk | None:
        for lane, rows in self.rows.items():
            if rows and lane not in self.held:
                at = START + datetime.timedelta(seconds=rows.pop(0))
                row: dict[str, Any] = {"at": at, "server": lane, "cpu": 1.0}
                return Chunk(pa.Table.from_pylist([row], COLUMNS), lane=lane)
        return None

    @property
    def position(self) -> Position:
        return {}


@dataclass(frozen=True)
class Lanes(Source):
    rows: dict[str, list[int]] = field(default_factory=dict)

    @property
    def has_lanes(self) -> bool:
        return True

    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        return LanesReader(self.rows)

    def __str__(self) -> str:
        return "lanes"


def test_the_least_of_the_lanes_is_the_boundary_and_stays_over_a_restart(tmp_path: Path) -> None:
    source = Lanes(0, rows={"0": [1, 2, 3], "1": [1]})
    reading = inlet(source, tmp_path)
    for _ in range(4):
        reading.take()
    start = int(START.timestamp()) * SECOND
    assert reading.own_boundary == start + 1 * SECOND
    saved = reading.save()
    assert saved["lanes"] == {"0": start + 3 * SECOND, "1": start + SECOND}
    again = inlet(Lanes(0, rows={"0": [], "1": [4]}), tmp_path, saved=saved)
    assert again.own_boundary == start + SECOND
    again.take()
    # The first lane was at 3 in the life before.
    assert again.own_boundary == start + 3 * SECOND


def test_a_lane_that_is_ahead_waits_when_too_much_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "MOST_WAITING", 5)
    reading = inlet(Lanes(0, rows={"0": list(range(50)), "1": list(range(50))}), tmp_path)
    most = 0
    # The first lane is always asked first; without an end to it the second would never be read.
    for _ in range(100):
        assert reading.take()
        most = max(most, reading.waiting_tuples)
        reading.release(reading.own_boundary)
    assert reading.tuples == 100
    assert most <= 7


def test_a_lane_without_rows_is_there_from_the_beginning(tmp_path: Path) -> None:
    reading = inlet(Lanes(0, rows={"0": [10], "1": []}), tmp_path)
    assert reading.take() == 1
    assert reading.own_boundary < int(START.timestamp()) * SECOND
