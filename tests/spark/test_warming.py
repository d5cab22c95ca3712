"""When a replica is warm: when its jobs get no quicker, or after as long as it may take."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.core.settings import Keeping
from holdfast.errors import InputError
from holdfast.nodes.jobs import Jobs
from holdfast.spark.warming import VARIABLE, WarmUp


def jobs_until_warm(warming: WarmUp, first_s: float, falls: float, least_s: float) -> int:
    """How many jobs are run if each takes so much less than the one before."""
    took_s, count = first_s, 0
    while not warming.is_over:
        warming.took(took_s)
        took_s, count = max(least_s, took_s * falls), count + 1
    return count


def test_jobs_that_take_the_same_are_warm_at_once() -> None:
    assert jobs_until_warm(WarmUp(60.0), 0.02, 1.0, 0.02) == 16


def test_jobs_that_get_quicker_go_on_until_they_do_not() -> None:
    # From 200 to 20 ms takes 45 jobs at 5 % each.
    assert 45 <= jobs_until_warm(WarmUp(60.0), 0.2, 0.95, 0.02) <= 45 + 16


def test_it_never_takes_longer_than_was_said() -> None:
    assert jobs_until_warm(WarmUp(2.0), 0.5, 0.99, 0.01) == 5
    assert jobs_until_warm(WarmUp(0.0), 0.5, 0.99, 0.01) == 0


@pytest.mark.parametrize("said", ["long", "-1", "nan", "601"])
def test_other_than_seconds_are_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, said)
    with pytest.raises(InputError, match=f"from 0 to 600; it is '{said}'"):
        WarmUp()


class Busy:
    """An engine whose jobs are counted; something else is to be done after the third."""

    def __init__(self) -> None:
        self.input_schemas: dict[str, Any] = {}
        self.ran = 0
        self.jobs: Jobs | None = None
        self.is_open = True
        self.other = threading.Event()

    def engine(self) -> Busy:
        return self

    def activate(self) -> None:
        pass

    def advance(self, *arguments: Any) -> SimpleNamespace:
        self.ran += 1
        if self.ran == 3:
            assert self.jobs is not None
            self.jobs.call(self.other.set)
        return SimpleNamespace()


def test_a_replica_with_something_to_do_does_not_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "600")
    busy, warm = Busy(), threading.Event()
    busy.jobs = Jobs(cast(Any, busy), Keeping.NOTHING, lambda event: None)
    busy.jobs.warm_up(warm.set)
    busy.jobs.start()
    assert busy.other.wait(60.0)
    assert warm.is_set()
    busy.jobs.close()
    assert busy.ran == 3
