"""What the clock decides of a source's own time is decided once: it is in the log, and stays.

An entry point lives three times with the same log. Between its lives the machine's clock is set, by
an hour ahead and by an hour back. Whatever is set, what an earlier life has logged is a prefix of
what there is later, no boundary is broken, and every row has one fate.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.clock import Clock, machine_clock
from holdfast.connect.push_source import PushSource
from holdfast.core.entry import EntrySettings
from holdfast.core.frame import Kind
from holdfast.flight.security import Security
from holdfast.log import StreamLog
from holdfast.nodes.entry_node import EntryNode
from holdfast.nodes.hosted import Place
from holdfast.producer import Producer
from holdfast.spark.engine import input_schema
from tests.flight.nodes import fail, location
from tests.processes.test_source_time import BUCKET_US, LOAD, SECOND, row, wait

HOUR = 3_600 * SECOND
LATENESS = 200_000
YEAR_2099 = 4_070_908_800 * SECOND


@dataclass(frozen=True)
class Setting:
    """What is said of a source, and what must come of it for the test to have shown anything."""

    source: PushSource
    happens: Callable[[dict[str, Any]], bool]
    lane_idle_us: int | None = None
    promises: bool = False


def drops(status: dict[str, Any]) -> bool:
    return bool(status["late"] and status["dead_letters"] > status["ahead"])


SETTINGS = {
    "lateness": Setting(PushSource(LATENESS), drops),
    "idle_after": Setting(
        PushSource(LATENESS, idle_after=150_000), lambda status: {*status["idle"]} == {"", "a", "b"}
    ),
    "one is idle": Setting(
        PushSource(LATENESS), lambda status: status["idle"] == ["b"], lane_idle_us=150_000
    ),
    "promise": Setting(PushSource(LATENESS), drops, promises=True),
    "future_limit": Setting(PushSource(LATENESS), lambda status: status["ahead"] > 0),
    "late is taken": Setting(
        PushSource(LATENESS, late="take"),
        lambda status: status["late"] > 0 and status["dead_letters"] == status["ahead"],
    ),
    "all of it": Setting(
        PushSource(LATENESS, idle_after=300_000, late="take", future_limit="30 seconds"),
        lambda status: status["late"] > 0 and status["ahead"] > 0,
        promises=True,
    ),
}


@contextmanager
def life(directory: Path, setting: Setting, ahead_us: int) -> Iterator[EntryNode]:
    """The entry point, on a machine whose clock was set so far ahead."""
    settings = EntrySettings(
        "entry-load",
        "load",
        ("main-1",),
        boundary_interval_us=20_000,
        lane_idle_us=setting.lane_idle_us,
    )
    clock = Clock(machine=lambda: machine_clock() + ahead_us)
    node = EntryNode(
        settings,
        LOAD.declaration,
        input_schema(LOAD),
        setting.source,
        BUCKET_US,
        directory,
        replace(Place("127.0.0.1", 0, {}, Security()), clock=clock),
        fail,
    )
    node.start()
    try:
        yield node
    finally:
        node.stop()


def logged(directory: Path) -> list[tuple[Any, ...]]:
    """Everything in the log, in its order."""
    found: list[tuple[Any, ...]] = []
    path = directory / "streams" / "load"
    with StreamLog.open(path, read_only=True) as log, log.replay(from_id=0) as frames:
        for _, frame in frames:
            if frame.kind is Kind.BOUNDARY:
                found.append(("boundary", frame.header.stime_min))
            elif frame.batch is not None:
                found += [("tuple", *each) for each in rows_of(frame.batch)]
    return found


def rows_of(batch: Any) -> list[tuple[int, int]]:
    stimes = batch["stime"].cast("int64").to_pylist()
    return list(zip(stimes, batch["value"].to_pylist(), strict=True))


def speak(node: EntryNode, setting: Setting, number: int, random: np.random.Generator) -> int:
    """Two producers say something, in no order; how many rows. Then they are quiet."""
    sent = 0
    with (
        Producer("load", location(node), name="a") as a,
        Producer("load", location(node), name="b") as b,
    ):
        start = node.place.clock.now()
        for turn in range(6):
            if turn == 5:  # what comes now can be late
                wait(lambda: node.entry.served.boundary > start - SECOND)
            for producer in (a, b) if turn < 4 else (a,):
                now = node.place.clock.now()
                ages = random.integers(0, LATENESS, 3).tolist()
                if turn == 5:
                    ages += [5 * SECOND, now - YEAR_2099]
                rows = [row(now - age, 1_000 * number + sent + at) for at, age in enumerate(ages)]
                producer.send(rows)
                sent += len(rows)
                producer.flush(20.0)
            if setting.promises and turn == 2:
                a.promise(node.place.clock.now() - LATENESS)
                b.promise(node.place.clock.now() - LATENESS)
            time.sleep(0.03)
        if setting.lane_idle_us is not None:
            wait(lambda: says(a, node) and setting.happens(node.status()))
        else:
            wait(lambda: setting.happens(node.status()))
    return sent


def says(producer: Producer, node: EntryNode) -> bool:
    """One goes on speaking while the other is quiet; those rows have no number."""
    producer.send([row(node.place.clock.now(), -1)])
    producer.flush(20.0)
    return True


@pytest.mark.parametrize("name", SETTINGS)
def test_what_the_clock_decided_stays_decided(name: str, tmp_path: Path) -> None:
    setting, random = SETTINGS[name], np.random.default_rng(3)
    before: list[tuple[Any, ...]] = []
    sent: set[int] = set()
    for number, ahead_us in enumerate([0, HOUR, -HOUR]):
        with life(tmp_path, setting, ahead_us) as node:
            # What was promised is promised still, whatever the clock says now.
            promised = max((each[1] for each in before if each[0] == "boundary"), default=0)
            assert node.entry.served.boundary >= promised
            count = speak(node, setting, number, random)
            sent |= {1_000 * number + each for each in range(count)}
        found = logged(tmp_path)
        assert found[: len(before)] == before
        assert len(found) > len(before)
        before = found
    boundary = -1
    for each in before:
        if each[0] == "boundary":
            assert each[1] >= boundary
            boundary = each[1]
        else:
            assert each[1] >= boundary
    values = Counter(each[2] for each in before if each[0] == "tuple" and each[2] >= 0)
    letters = (tmp_path / "dead-letters.jsonl").read_text().splitlines()
    refused = Counter(json.loads(letter)["row"]["value"] for letter in letters)
    assert max(values.values()) == 1
    assert not values.keys() & refused.keys()
    assert values.keys() | {each for each in refused if each >= 0} == sent
