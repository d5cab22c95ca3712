"""The figures of the DPC benchmarks, from arrivals made up for the purpose."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import dpc_reconcile_runs
from benchmarks.dpc_arrivals import Failure, Seen, figures
from benchmarks.dpc_reconcile import figures as reconcile_figures
from benchmarks.dpc_reconcile_runs import PARTS, KeptRuns, Run, settings

SECOND = 1_000_000
FAILURE = Failure(cut=10 * SECOND, healed=15 * SECOND)
UNTIL = 30 * SECOND


def seen(*rows: tuple[int, float, float, bool]) -> Seen:
    """Rows of number, made, came (in seconds) and whether stable; number % 3 is the source."""
    return Seen(
        np.array([row[0] for row in rows], np.int64),
        np.array([int(row[1] * SECOND) for row in rows], np.int64),
        np.array([int(row[2] * SECOND) for row in rows], np.int64),
        np.array([row[3] for row in rows], np.bool_),
    )


def test_the_first_result_of_a_tuple_counts() -> None:
    found = figures(
        seen((0, 11, 13.5, False), (0, 11, 17, True), (1, 12, 13, True)), FAILURE, UNTIL
    )
    assert found.delay_new_s == 2.5
    assert found.tentative == 1
    assert found.new_tuples == 2


def test_tuples_of_the_failed_source_count_when_it_is_back() -> None:
    missing = (2, 11.0, 16.0, True)
    back = (5, 15.5, 16.5, True)
    found = figures(seen(missing, back), FAILURE, UNTIL)
    assert (found.delay_new_s, found.new_tuples) == (1.0, 1)


def test_tuples_of_the_failed_source_count_if_every_replica_had_them() -> None:
    had, on_its_way = (2, 9.2, 12.0, False), (5, 9.3, 16.0, True)
    found = figures(seen(had, on_its_way), replace(FAILURE, had=1), UNTIL)
    assert (found.delay_new_s, found.new_tuples) == (2.8, 1)


def test_what_happened_long_before_the_failure_does_not_count() -> None:
    found = figures(seen((0, 3, 9, False), (3, 9.5, 10.5, True)), FAILURE, UNTIL)
    assert (found.delay_new_s, found.tentative) == (1.0, 0)


def reconciled(part: str, kind: str, state: int, seconds: float, redone: int = 1) -> Run:
    return Run(part, kind, state, 1_000, 5.0, seconds, seconds, 1.0, redone, 30.0)


def test_slopes_of_reconciliation_are_told_by_the_tuples_of_a_state() -> None:
    runs = [
        *(reconciled("state", "checkpoint", size, 0.1) for size in (0, 100_000)),
        *(reconciled("state", "undo", size, 0.1 + size * 4e-6) for size in (0, 50_000, 100_000)),
        *(reconciled("two joins", "undo", size, 0.1 + size * 9e-6) for size in (0, 100_000)),
        reconciled("beside", "undo", 100_000, 0.2),
        reconciled("redo", "checkpoint", 100, 0.5, redone=100_000),
    ]
    found = reconcile_figures(runs)
    assert found["undo_us_per_tuple_of_state"] == pytest.approx(4.0)
    assert found["undo_two_joins_us_per_tuple_of_state"] == pytest.approx(9.0)
    assert found["checkpoint_us_per_tuple_of_state"] == pytest.approx(0.0)
    assert found["undo_two_joins_over_undo"] == 2.0
    assert found["undo_beside_over_undo"] == 0.4
    assert found["checkpoint_redo_over_undo_redo"] == 0.2
    assert found["redo_tuples_s_over_input_rate"] == 200.0
    assert found["marker_ms"] == 0.0


def test_every_part_is_compared_at_the_largest_state() -> None:
    for quick in (True, False):
        for part in ("state", "two joins", "beside"):
            sizes = {
                max(each.state_tuples, each.beside_tuples)
                for _, each in settings(quick, [part])
                if each.reconcile == "undo"
            }
            assert max(sizes) == (25_000 if quick else 100_000)


def test_parts_of_a_benchmark_are_run_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_all(quick: bool, parts: list[str], tell: object) -> list[Run]:
        return [reconciled(part, "undo", 100, float(len(parts))) for part in parts]

    monkeypatch.setattr(dpc_reconcile_runs, "run_all", run_all)
    path = tmp_path / "rows.json"
    for parts in (["redo"], ["state", "tuples"], ["state"]):
        KeptRuns(path, True).add(True, parts, print)
    kept = KeptRuns(path, True)
    assert [(run.part, run.reconciliation_s) for run in kept.runs] == [
        ("state", 1.0),
        ("tuples", 2.0),
        ("redo", 1.0),
    ]
    assert kept.seconds == json.loads(path.read_text())["seconds"]
    assert {part for part, _ in settings(True, PARTS)} == {*PARTS}
    with pytest.raises(SystemExit, match="the other form"):
        KeptRuns(path, False)
