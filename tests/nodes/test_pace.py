"""Overload is said: how much faster input comes than it is processed."""

from __future__ import annotations

import pytest

from holdfast.nodes.journal import Journal
from holdfast.nodes.metrics import NodeMetrics
from holdfast.nodes.pace import Busy, Pace, tell_pace
from holdfast.nodes.problems import Problems

SECOND = 1_000_000


def paced(input_rate: float, job_rate: float, seconds: int, behind_s: float = 0.0) -> Pace:
    """So many seconds at so many seconds of stream a second, in and out."""
    pace = Pace(allowed_us=2 * SECOND)
    for step in range(2 * seconds + 1):
        at = step * SECOND // 2
        arrived = int(100 * SECOND + behind_s * SECOND + input_rate * at)
        pace.note(at, arrived, min(arrived, int(100 * SECOND + job_rate * at)))
    return pace


def test_input_that_comes_twice_as_fast_as_it_is_processed_is_overload() -> None:
    pace = paced(1.0, 0.5, 20)
    assert 1.9 < pace.ratio < 2.1
    assert pace.overload is not None
    assert "input comes 2.0 times as fast as it is processed: 10.0 s of it wait" in pace.overload


def test_a_replica_that_keeps_up_is_not_overloaded() -> None:
    assert paced(1.0, 1.0, 20).overload is None
    assert paced(1.0, 1.5, 20).overload is None


def test_one_that_is_behind_and_catches_up_is_not_overloaded() -> None:
    pace = paced(1.0, 1.4, 20, behind_s=30)
    assert pace.behind_us > 10 * SECOND
    assert pace.overload is None


def test_one_that_processes_nothing_says_so() -> None:
    pace = paced(1.0, 0.0, 20)
    assert pace.overload is not None
    assert "input comes and nothing of it is processed" in pace.overload


def test_a_short_spell_is_no_overload() -> None:
    assert paced(1.0, 0.0, 2).overload is None


def test_an_input_that_stands_still_is_none() -> None:
    assert paced(0.0, 0.0, 20, behind_s=5).overload is None


def test_one_that_gets_nothing_done_for_a_while_says_so() -> None:
    pace = paced(0.0, 0.0, 20, behind_s=5)
    said = pace.standing(20 * SECOND, recovering=False)
    assert said is not None
    assert "nothing was processed for 20 s; 5.0 s of input wait" in said
    pace.note(21 * SECOND, 105 * SECOND, 101 * SECOND)
    assert pace.standing(21 * SECOND, recovering=False) is None
    # Who has nothing to do stands still, too.
    assert paced(0.0, 0.0, 20).standing(20 * SECOND, recovering=False) is None


def test_one_that_recovers_says_so_though_no_input_has_come() -> None:
    pace = Pace(allowed_us=2 * SECOND)
    for second in range(10):
        pace.note(second * SECOND, 0, 100 * SECOND)
    said = pace.standing(9 * SECOND, recovering=True)
    assert said is not None
    assert said.startswith("it recovers, and nothing was processed for 9 s")
    pace.forget()
    assert pace.standing(99 * SECOND, recovering=True) is None


def test_one_that_recovers_and_has_processed_nothing_yet_is_behind_by_no_epoch() -> None:
    pace, present = Pace(allowed_us=2 * SECOND), 1_794_805_289 * SECOND
    for second in range(10):
        pace.note(second * SECOND, present + second * SECOND, 0)
    assert pace.behind_us == 0
    assert pace.overload is None
    said = pace.standing(9 * SECOND, recovering=True)
    assert said == (
        "it recovers, and nothing was processed for 9 s. Results go on when what is under way is "
        "done"
    )
    # Its first step is no speed; from then on it is behind by what came before.
    pace.note(10 * SECOND, present + 10 * SECOND, present)
    assert (pace.behind_us, pace.ratio) == (10 * SECOND, 1.0)
    for second in range(11, 20):
        pace.note(second * SECOND, present + second * SECOND, present + (second - 10) * SECOND // 2)
    assert pace.overload is not None
    assert "2.0 times as fast as it is processed: 14.5 s of it wait" in pace.overload


def test_jobs_count_with_what_of_them_was_in_the_last_seconds() -> None:
    busy = Busy(100.0)
    assert busy.share(102.0) is None  # too young to tell
    busy.note(103.0, 2.0)
    assert busy.share(104.0) == pytest.approx(0.5)
    busy.note(112.0, 8.0)
    # Of the ten seconds the first job had one, and the second eight.
    assert busy.share(112.0) == pytest.approx(0.9)
    assert busy.share(113.5) == pytest.approx(0.8)
    assert busy.share(130.0) == 0.0


def test_one_that_begins_after_it_was_away_is_not_told_to_get_more_cores() -> None:
    pace, metrics = Pace(allowed_us=2 * SECOND), NodeMetrics("main-11", "replica")
    problems = Problems(Journal("main-11"), metrics)
    for second in range(20):
        reach = ((600 + second) * SECOND, 100 * SECOND)
        tell_pace(pace, metrics, problems, second * SECOND, reach, recovering=True)
    assert pace.overload is not None
    assert [each.split(",")[0] for each in problems.texts] == ["it recovers"]
