"""Pauses between attempts."""

from __future__ import annotations

from holdfast.core.pauses import pause_after


def test_pauses_double_up_to_the_longest() -> None:
    assert [pause_after(failures, 50, 300) for failures in (1, 2, 3, 4, 5)] == [
        50,
        100,
        200,
        300,
        300,
    ]
    assert pause_after(2, 0.05, 2.0) == 0.1


def test_however_often_something_fails_the_pause_is_a_pause() -> None:
    assert pause_after(0, 0.05, 2.0) == 0.05
    assert pause_after(1_000_000, 0.05, 2.0) == 2.0
    assert pause_after(1_000_000, 1, 10**6) == 10**6
