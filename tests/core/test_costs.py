"""What jobs have taken tells what a recovery will take."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.costs import Costs, JobLine


def test_a_fixed_part_is_told_from_what_tuples_take() -> None:
    line = JobLine()
    for tuples in (1_000, 30_000, 7_000, 20_000, 12_000):
        line.add(tuples, 60_000 + 1.5 * tuples)
    fixed, each = line.fixed_and_each_us()
    assert fixed == pytest.approx(60_000, rel=1e-3)
    assert each == pytest.approx(1.5, rel=1e-3)


def test_jobs_of_one_size_tell_nothing_apart() -> None:
    line = JobLine()
    for took in (90_000, 110_000, 100_000, 100_000):
        line.add(20_000, took)
    fixed, each = line.fixed_and_each_us()
    assert fixed == pytest.approx(0.0, abs=1.0)
    assert each == pytest.approx(5.0, rel=0.01)


@given(st.integers(0, 1_000), st.floats(0.0, 0.3), st.floats(0.1, 10.0))
def test_a_large_job_is_not_expected_to_be_much_faster_than_it_is(
    seed: int, noise: float, each_us: float
) -> None:
    rng = random.Random(seed)
    line = JobLine()
    for _ in range(200):
        tuples = rng.randint(5_000, 40_000)
        took = (80_000 + each_us * tuples) * rng.uniform(1 - noise, 1 + noise)
        line.add(tuples, took)
    fixed, each = line.fixed_and_each_us()
    expected = Costs(fixed, 0.0, each).expected_us(0, 1_000_000)
    assert expected > 0.6 * (80_000 + each_us * 1_000_000)
