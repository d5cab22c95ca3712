"""The replace benchmark, as far as it can be tried without processes."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.replace import _mean_ms, of_all, of_parts
from benchmarks.replace_jobs import Job, Stretch, read_totals
from benchmarks.replace_lost import Late, Loss, is_well, pause_us
from benchmarks.replace_page import page_of
from benchmarks.replace_setting import (
    BYSTANDER,
    PROCESSES,
    PROTECTIONS,
    SALES,
    Sales,
    bounded,
    of_two_sources,
    protected,
)
from benchmarks.replace_watch import Compared, compared, longest_gap_us
from holdfast.core.settings import Then


def test_its_deployments_are_as_they_say(tmp_path: Path) -> None:
    deployment = protected(tmp_path / "replace")
    first, second = (set(deployment.processes[name]) for name in PROCESSES)
    assert first == {f"{name}-1" for name in PROTECTIONS}
    assert second == {f"{name}-2" for name in PROTECTIONS}
    bystanders = set(deployment.processes[BYSTANDER])
    assert bystanders == {f"{BYSTANDER}_{name}-1" for name in PROTECTIONS}
    assert set(of_two_sources(tmp_path / "failing").sources) == {"sales", "more"}
    bound = bounded(tmp_path / "bounded", 1_000, "retire").bounds[""]
    assert (bound.size_bytes, bound.then) == (1_000, Then.RETIRE)


def test_the_right_answer_is_that_of_a_loop_over_the_sales() -> None:
    made = Sales()
    sent = made.opening + 20_000
    parts = [made.rows(0, made.opening - 7), made.rows(made.opening - 7, 7), made.later(0, 20_000)]
    sales = pa.concat_tables(parts)
    assert sales.equals(made.rows(0, sent))
    open_windows: dict[int, list[int]] = defaultdict(list)
    expected = []
    columns = [sales[name].to_pylist() for name in ("number", "item", "price")]
    for number, item, price in zip(*columns, strict=True):
        open_windows[item].append(price)
        if len(open_windows[item]) == SALES:
            expected.append((number, sum(open_windows.pop(item))))
    newest, paid = zip(*expected, strict=True)
    assert made.right_answer(sent).to_pydict() == {"newest": list(newest), "paid": list(paid)}
    assert len(open_windows) == made.open_after(sent) > 100_000


def test_a_pause_is_by_how_much_the_latest_is_later_than_the_latest_of_as_many_usual_ones() -> None:
    usual = np.arange(1, 102)
    assert pause_us(np.array([70]), usual) == 70 - 51
    assert pause_us(np.array([15, 130]), usual) == pytest.approx(130 - (1 + 100 * 0.5**0.5))
    assert pause_us(np.array([9]), usual) == 0
    assert pause_us(usual[:0], usual) == 0


def test_by_chance_there_is_a_pause_half_of_the_time() -> None:
    random = np.random.default_rng(5)
    usual = random.integers(0, 1_000_000, 1_000)
    for count in (1, 3, 6):
        found = [pause_us(random.integers(0, 1_000_000, count), usual) for _ in range(1_000)]
        assert np.mean(np.array(found) > 0) == pytest.approx(0.5, abs=0.06)


def test_of_several_losses_the_worst_counts_but_of_single_results_the_median() -> None:
    def loss(gap_ms: int, latest_ms: int) -> Loss:
        calm = np.full(5, 40_000)
        figures = {"gap_ms": gap_ms, "job_ms": 30.0 + gap_ms}
        return Loss(figures, Late(calm, np.array([latest_ms * 1_000])), Late(calm, calm))

    found = of_all([loss(10, 50), loss(20, 130), loss(11, 45)])
    assert (found["partner_pause_ms"], found["partner_pause_worst_ms"]) == (10, 90)
    assert found["partner_pauses_ms"] == [10, 90, 5]
    assert found["bystander_pauses_ms"] == [0, 0, 0]
    assert found["partner_usual_ms"] == [40, 40, 40]
    assert (found["gap_ms"], found["job_ms"]) == (20, 41.0)


def test_the_first_job_of_a_copy_that_woke_meanwhile_is_left_out() -> None:
    before, after = {"a-1": (2.0, 1.0)}, {"a-1": (4.0, 1.1), "b-1": (1.0, 13.0)}
    assert _mean_ms(before, after) == {"a-1": pytest.approx(50.0)}


def test_what_is_lost_doubled_or_wrong_is_counted() -> None:
    expected = pa.table({"newest": [3, 7, 9], "paid": [30, 70, 90]})
    assert compared(expected, expected) == Compared(3, 0, 0, 0)
    held = pa.table({"newest": [7, 3, 7, 8], "paid": [71, 30, 71, 80]})
    assert compared(held, expected) == Compared(3, lost=1, doubled=1, differing=2)


def test_a_gap_may_begin_before_a_stretch_and_end_after_it() -> None:
    came = [10, 20, 50, 60, 95]
    assert longest_gap_us(came, 30, 70) == 35
    assert longest_gap_us(came, 21, 55) == 30
    assert longest_gap_us(came, 96, 200) == 105


def test_a_copy_is_well_when_it_holds_the_other_ones_state() -> None:
    asleep = {"state": "suspended", "copy": "suspended", "checkpoints": {"taken": 0}}
    assert not is_well(asleep)
    assert is_well({**asleep, "checkpoints": {"taken": 1}})
    assert is_well({"state": "stable"})
    assert is_well({"state": "stable", "copy": "primary"})
    assert not is_well({"state": "stable", "copy": "secondary"})
    assert not is_well({"error": "nobody listens"})


def test_jobs_are_counted_for_each_node_of_a_process() -> None:
    text = """# TYPE holdfast_job_seconds histogram
holdfast_job_seconds_bucket{kind="replica",le="0.02",node="active-1"} 3.0
holdfast_job_seconds_count{kind="replica",node="active-1"} 4.0
holdfast_job_seconds_sum{kind="replica",node="active-1"} 0.5
holdfast_job_seconds_count{kind="replica",node="passive-1"} 0.0
holdfast_job_seconds_sum{kind="replica",node="passive-1"} 0.0
"""
    assert read_totals(text) == {"active-1": (4.0, 0.5)}


def test_a_part_that_ends_with_an_error_takes_no_figures_from_the_others() -> None:
    told: list[str] = []

    def ends() -> dict[str, object]:
        raise TimeoutError("it did not come")

    found = of_parts({"lost": lambda: {"gap_ms": 3}, "failure": ends}, told.append)
    assert found == {"gap_ms": 3, "failed": {"failure": "TimeoutError: it did not come"}}
    assert told == ['lost: {"gap_ms": 3}'], "it is told when it is found"
    assert of_parts({"kept": lambda: {"kept": 1}}, told.append) == {"kept": 1}


def jobs(ms: list[float], first_at: int = 0) -> list[Job]:
    return [Job(first_at + 1_000_000 * place, each) for place, each in enumerate(ms)]


def test_what_the_machine_was_slower_by_for_some_seconds_is_not_in_what_is_beside_a_control() -> (
    None
):
    quick, slow = [8.0] * 9, [8.0] * 4 + [16.0] * 5
    before = Stretch(jobs(quick), jobs(quick, 150_000))
    after = Stretch(jobs(slow), jobs(slow, -200_000))
    assert (before.ms, after.ms, after.control_ms) == (8.0, 16.0, 16.0)
    assert before.beside == after.beside == 1.0
    assert Stretch(jobs([10.0] * 9), jobs(quick)).beside == 1.25, "what is real stays"
    # What was not seen by itself has nothing beside it.
    assert Stretch(jobs([9.0, 24.0, 9.0]), [Job(0, 9.0), Job(2_100_000, 9.0)]).beside == 1.0
    with pytest.raises(RuntimeError, match="by itself"):
        _ = Stretch([], jobs(quick)).ms
    with pytest.raises(RuntimeError, match="beside"):
        _ = Stretch(jobs(quick), []).beside


def test_the_page_has_every_figure() -> None:
    one = {
        "rejoin_s": 1.25,
        "partner_pause_ms": 41,
        "partner_pause_worst_ms": 66,
        "partner_pauses_ms": [40, 41, 66],
        "partner_usual_ms": [58, 91, 150],
        "bystander_pauses_ms": [0, 3, 17],
        "lent_beside_jobs_ms": 9,
        "gap_ms": 1_234,
        "results": 5_678,
        "job_ms": 77,
    }
    right = {"lost": 0, "doubled": 0, "differing": 0}
    told = {
        **dict.fromkeys(PROTECTIONS, one | right),
        **{
            "losses": 3,
            "x_s": 4.0,
            "tuples_per_second": 3_000,
            "open_windows": 101_000,
            "seconds": 200.0,
        },
        **{"kept_bytes_max": 1.04, "kept_minutes_of_data": 5.0, "failure_s": 30.2},
        "job_ms_after_long_failure_over_before": 1.1,
        "job_ms_after_long_failure_over_before_beside_control": 0.93,
        "job_ms_after_long_failure_over_before_of_control": 1.17,
        "jobs": {"before": 15, "late_in_the_failure": 7, "after": 14},
        "job_ms": {"before": 50.0, "late_in_the_failure": 55.0, "after": 52.0},
        "control_job_ms": {"before": 48.0, "late_in_the_failure": 57.0, "after": 53.5},
        **{"rolling_restart_gap_over_x": 0.7, "rolling_restart_gap_s": 2.8},
        "machine": {"cores": 2, "cpu": "Processor", "memory_gib": 24, "date": "2026-01-01"},
    }
    page = page_of(told, "make bench BENCH=replace")
    for figure in ("1.25", "1,234", "40, 41, 66", "58, 91, 150", "1.04", "1.1 ", "0.7", "2.8 s"):
        assert figure in page
    assert "0.93 | at most 1.2; the control's 48 ms before, 57 late" in page
    assert "1.17 | nothing happens to it" in page
    assert "15 jobs before, 7 late in it and 14 after" in page
