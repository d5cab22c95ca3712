"""An hour of it is kept, and what is new is told once."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from benchmarks.web_made_up import small
from holdfast.client import Boundary, Tuples, Undo
from holdfast.cluster.children import log_path
from holdfast.web.history import CORRECTED, KEPT_SECONDS, STABLE, TENTATIVE, History
from holdfast.web.journals import Journals
from holdfast.web.model import Places
from holdfast.web.outputs import KEPT_ROWS, OutputView


def tuples(stable: bool, first_id: int, *stimes: int) -> Tuples:
    table = pa.table(
        {
            "stime": pa.array(stimes, pa.timestamp("us")),
            "tmax": pa.array(stimes, pa.timestamp("us")),
            "value": pa.array(range(len(stimes)), pa.int64()),
        }
    )
    return Tuples(stable, first_id, table)


def test_what_came_is_counted_by_seconds_and_told_once() -> None:
    history = History()
    history.came("busy", 100.2, STABLE, 5, 0.5)
    history.came("busy", 100.7, STABLE, 5, 0.7)
    history.came("busy", 100.8, TENTATIVE, 1, 2.0, ["load missing"])
    assert history.fresh() == {
        "arrivals": {
            "busy": [[100, STABLE, 10, 0.7, []], [100, TENTATIVE, 1, 2.0, ["load missing"]]]
        }
    }
    assert history.fresh() == {}
    history.came("busy", 100.9, STABLE, 1, 0.1)
    assert history.fresh()["arrivals"]["busy"] == [[100, STABLE, 11, 0.7, []]]
    history.came("busy", 101.0 + KEPT_SECONDS, STABLE, 1, 0.1)
    assert [each[0] for each in history.whole()["arrivals"]["busy"]] == [101 + int(KEPT_SECONDS)]


def test_states_are_noted_when_they_change_and_the_oldest_that_counts_is_kept() -> None:
    history = History()
    for at, state in ((1.0, "stable"), (2.0, "stable"), (3.0, "gone"), (2.5, "recovering")):
        history.in_state("main-1", at, state)
    assert history.whole()["states"] == [
        ["main-1", 1.0, "stable"],
        ["main-1", 3.0, "gone"],
        ["main-1", 3.0, "recovering"],
    ]
    history.in_state("main-1", 10.0 + KEPT_SECONDS, "stable")
    assert [each[2] for each in history.whole()["states"]] == ["recovering", "stable"]


def test_a_state_that_is_heard_of_late_is_put_where_it_belongs() -> None:
    history = History()
    history.in_state("main-1", 1000.0, "stable")
    for at, state in ((900.0, "recovering"), (950.0, "stable"), (960.0, "stable")):
        history.in_state("main-1", at, state)
    assert [each[1:] for each in history.whole()["states"]] == [
        [900.0, "recovering"],
        [950.0, "stable"],
        [1000.0, "stable"],
    ]


def test_what_a_process_wrote_in_the_hour_before_is_taken(tmp_path: Path) -> None:
    deployment, history = small(tmp_path), History()
    path = log_path(deployment, "main-1")
    path.parent.mkdir(parents=True, exist_ok=True)

    def line(before_s: float, **said: str) -> str:
        at = datetime.fromtimestamp(time.time() - before_s, UTC).isoformat()
        return json.dumps({"time": at, "node": "main-1", **said}) + "\n"

    path.write_text(
        line(2 * KEPT_SECONDS, event="long ago")
        + line(1800.0, event="state", state="up_failure")
        + line(1799.0, event="input lost", level="warning")
    )
    journals = Journals(history)
    history.in_state("main-1", time.time(), "stable")
    journals.follow(Places(deployment))
    found = history.whole()
    assert [each[2] for each in found["states"]] == ["up_failure", "stable"]
    assert [each[2] for each in found["events"]] == ["input lost"]
    journals.follow(Places(deployment))
    assert history.whole() == found, "and once"
    journals.close()


def test_a_control_is_told_with_what_came_of_it() -> None:
    history = History()
    history.came("busy", 99.0, STABLE, 7, 0.1)
    history.controlled(100.0, "ada", "kill -9 main-1", "process 7", False)
    history.in_state("main-1", 100.5, "gone")
    history.came("busy", 102.0, TENTATIVE, 3, 2.1)
    history.came("busy", 104.0, CORRECTED, 3, 5.0)
    (found,) = history.controls(110.0)
    assert (found[STABLE], found[TENTATIVE], found[CORRECTED]) == (0, 3, 3)
    assert found["longest_s"] == 2.1
    assert found["states"] == [["main-1", 0.5, "gone"]]
    history.controlled(103.0, "ada", "heal", "done", False)
    first, second = history.controls(110.0)
    assert first[CORRECTED] == 0  # that is what the second did
    assert second[CORRECTED] == 3


def test_tentative_rows_stand_until_they_are_taken_back() -> None:
    history = History()
    view = OutputView("busy", history, lambda: ["main-1 does not answer"])
    view.apply(tuples(True, 0, 1_000_000, 2_000_000), 2.5)
    view.apply(tuples(False, 2, 3_000_000, 4_000_000), 4.5)
    assert [row[2] for row in view.whole()["all"]] == [STABLE, STABLE, TENTATIVE, TENTATIVE]
    view.apply(Undo(3_500_000), 5.0)
    view.apply(tuples(True, 2, 3_000_000), 5.1)
    view.apply(Boundary(3_500_000), 5.1)
    kinds = [row[2] for row in view.whole()["all"]]
    assert kinds == [STABLE, STABLE, CORRECTED, TENTATIVE]
    assert view.whole()["undone"] == 1
    view.apply(Undo(9_000_000), 6.0)
    view.apply(tuples(True, 3, 4_000_000, 5_000_000), 6.1)
    assert [row[2] for row in view.whole()["all"]][-2:] == [CORRECTED, STABLE]
    view.apply(tuples(True, 5, 6_000_000), 7.0)
    assert view.whole()["all"][-1][2] == STABLE
    arrivals = history.whole()["arrivals"]["busy"]
    assert [each[1] for each in arrivals if each[4]] == [TENTATIVE]
    assert arrivals[1][4] == ["main-1 does not answer"]


def test_of_many_rows_the_end_is_kept_and_they_are_told_in_pieces() -> None:
    view = OutputView("busy", History(), list)
    for batch in range(20):
        first = 1_000_000 * batch
        view.apply(tuples(True, 200 * batch, *range(first, first + 200)), 30.0)
    assert len(view.whole()["all"]) == KEPT_ROWS
    (fresh,) = view.fresh()
    assert len(fresh["all"]) == KEPT_ROWS
    assert view.fresh() == []
    view.apply(tuples(True, 4000, 90_000_000), 90.1)
    (fresh,) = view.fresh()
    assert [row[0] for row in fresh["rows"]] == [4000]
