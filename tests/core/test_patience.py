"""How long tuples wait: what jobs leave of X, within bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.patience import REDO_AT_FIRST, WAY_US, Patience
from holdfast.core.settings import SECOND_US, Timing

X = 3 * SECOND_US
TIMING = Timing(delay_us=X, alpha=0.9, alpha_adapts=True)


def run(patience: Patience, *took_ms: int, redo: bool = False, span_us: int = 200_000) -> None:
    for each in took_ms:
        patience.job_begins(span_us, redo, 1_000)
        patience.job_done(1_000 + each * 1_000)


def test_some_of_x_is_left_until_jobs_need_more() -> None:
    patience = Patience(TIMING)
    # Quick jobs are over less than what gathers in a wait: some of X is left whatever they took.
    assert patience.alpha == pytest.approx(0.87)
    run(patience, *[80] * 20)
    assert patience.alpha == pytest.approx(0.87)
    assert patience.alpha_x_us + patience.need_us <= X
    run(patience, *[400] * 20)
    assert patience.alpha < 0.87


def test_a_slow_job_counts_at_once_and_is_forgotten_little_by_little() -> None:
    patience = Patience(TIMING)
    run(patience, *[80] * 20)
    before = patience.alpha_x_us
    run(patience, 600)
    at_once = patience.alpha_x_us
    assert at_once <= X - 600_000 - WAY_US
    run(patience, *[80] * 10)
    assert at_once < patience.alpha_x_us < before
    run(patience, *[80] * 200)
    assert patience.alpha_x_us == pytest.approx(before, rel=0.02)


def test_slow_jobs_that_recur_are_remembered_until_they_do_so_no_more() -> None:
    once, often = Patience(TIMING), Patience(TIMING)
    run(once, *[80] * 100, 700, *[80] * 40)
    run(often, *[80] * 20, *[80] * 40, 700, *[80] * 40, 700, *[80] * 40, 700, *[80] * 40)
    # The next of them would be late after one that was chance, and is not where they recur.
    assert once.alpha_x_us > X - 700_000
    assert often.alpha_x_us < X - 900_000
    run(often, *[80] * 1_000)
    assert often.alpha == pytest.approx(0.87)


def test_more_is_left_where_jobs_vary() -> None:
    steady, varies = Patience(TIMING), Patience(TIMING)
    run(steady, *[80] * 20, *[200] * 100)
    run(varies, *[80] * 20, *[80, 200] * 50)
    assert varies.alpha_x_us < steady.alpha_x_us - 200_000


def test_more_is_left_where_no_processor_is_ever_idle() -> None:
    """Jobs that were quick so far say nothing of one that finds the processors taken."""
    patience = Patience(TIMING)
    run(patience, *[80] * 40)
    for _ in range(20):
        patience.measured(0.85)
    assert patience.alpha == pytest.approx(0.87), "it is idle now and then"
    for _ in range(10):
        patience.measured(1.0)
    assert patience.alpha == pytest.approx(0.74, abs=0.005)
    run(patience, *[300] * 40)
    slow = patience.alpha_x_us
    for _ in range(100):
        patience.measured(0.5)
    assert X - patience.alpha_x_us < 0.85 * (X - slow), "more than jobs took was left"
    run(patience, *[80] * 200)
    assert patience.alpha == pytest.approx(0.87)


def test_a_redo_takes_no_longer_than_two_usual_jobs_however_much_is_left() -> None:
    patience = Patience(TIMING)
    run(patience, *[50] * 30)
    for _ in range(10):
        buckets = patience.redo_buckets
        run(patience, 10 * buckets, redo=True, span_us=buckets * TIMING.bucket_us)
    assert patience.redo_buckets * 10 <= 2 * 50


def test_what_the_first_jobs_of_a_life_took_is_soon_forgotten() -> None:
    patience = Patience(TIMING)
    run(patience, 2_000, 600, 300)
    assert patience.alpha < 0.7
    run(patience, *[80] * 30)
    assert patience.alpha > 0.85


def test_who_delays_reckons_with_a_slow_job_under_way() -> None:
    patience, eager = Patience(TIMING, delays=True), Patience(TIMING)
    for each in (patience, eager):
        run(each, *[80] * 20, 300)
    usual_us = patience.ahead_us
    assert 80_000 < usual_us < 120_000
    assert patience.alpha_x_us <= X - 300_000 - (300_000 - usual_us) - WAY_US
    assert patience.alpha_x_us < eager.alpha_x_us
    assert eager.ahead_us == 0


def test_it_never_waits_less_than_the_bound() -> None:
    patience = Patience(TIMING)
    run(patience, *[20_000] * 5)
    assert patience.alpha_x_us == X // 2


def test_alpha_by_hand_stays() -> None:
    patience = Patience(Timing(delay_us=X, alpha=0.9))
    run(patience, *[2_000] * 5)
    assert patience.alpha_x_us == 2_700_000


def test_jobs_over_much_time_say_nothing_of_the_usual_ones() -> None:
    patience = Patience(TIMING)
    run(patience, *[80] * 20)
    before = patience.alpha_x_us
    run(patience, 5_000, span_us=20 * SECOND_US)
    assert patience.alpha_x_us == before


def test_redo_jobs_grow_while_they_are_quick_and_shrink_when_they_are_not() -> None:
    patience = Patience(TIMING)
    run(patience, *[80] * 20)
    assert patience.redo_buckets == REDO_AT_FIRST
    for _ in range(4):
        run(patience, 20, redo=True, span_us=patience.redo_buckets * 200_000)
    assert patience.redo_buckets == TIMING.redo_buckets
    run(patience, 900, redo=True, span_us=patience.redo_buckets * 200_000)
    assert patience.redo_buckets <= TIMING.redo_buckets // 2


def test_a_redo_of_slow_jobs_comes_to_an_end_all_the_same() -> None:
    patience = Patience(TIMING)
    for _ in range(10):
        run(patience, 800, redo=True, span_us=patience.redo_buckets * 200_000)
    assert patience.redo_buckets * 200_000 >= 4 * 800_000


@given(st.lists(st.integers(1, 4_000), min_size=1, max_size=40))
def test_whatever_jobs_take_it_stays_within_its_bounds(took_ms: list[int]) -> None:
    patience = Patience(TIMING)
    for each in took_ms:
        run(patience, each)
        patience.validate()
        fits = patience.alpha_x_us + patience.need_us <= X
        assert fits or patience.alpha_x_us == X // 2
        # What comes next may be as slow as the slowest lately, with one like the usual before it.
        assert patience.need_us >= each * 1_000 + WAY_US


def test_a_least_alpha_above_the_most_is_refused() -> None:
    with pytest.raises(ValueError, match="least alpha"):
        Timing(alpha=0.6, alpha_adapts=True, alpha_least=0.7)


def test_jobs_beside_a_correction_count_while_there_is_one() -> None:
    patience = Patience(TIMING)
    run(patience, *[80] * 20)
    calm = patience.alpha_x_us
    patience.look(corrects=True)
    assert patience.alpha_x_us == calm
    run(patience, 600, 500)
    assert patience.alpha_x_us <= X - 600_000 - WAY_US
    patience.look(corrects=False)
    assert patience.alpha_x_us == calm
    # The next correction is as that one was.
    patience.look(corrects=True)
    assert patience.alpha_x_us <= X - 600_000 - WAY_US


def test_a_job_that_ends_in_a_correction_was_beside_it() -> None:
    patience = Patience(TIMING)
    run(patience, *[80] * 20)
    calm = patience.alpha_x_us
    patience.job_begins(200_000, False, 1_000)
    patience.look(corrects=True)
    patience.job_done(900_000)
    patience.look(corrects=False)
    assert patience.alpha_x_us == calm
