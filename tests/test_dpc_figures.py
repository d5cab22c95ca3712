"""The figures of the DPC benchmarks, from arrivals made up for the purpose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.dpc_arrivals import Failure, Seen, figures

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
