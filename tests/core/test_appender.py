"""The appender: what fails is tried again, where it failed."""

from __future__ import annotations

from holdfast.core.appender import Appender
from holdfast.core.effects import Append
from holdfast.core.events import AppendFailed, RecoveryRecord
from holdfast.core.frame import Kind
from holdfast.core.records import LoggedStream
from tests.core.frames_for_tests import boundary, mark, stable

RETRY_US = 100


def flushed(appender: Appender, now: int) -> Append:
    (order,) = appender.flush(now)
    assert isinstance(order, Append)
    return order


def test_logs_that_took_their_frames_do_not_get_them_again() -> None:
    appender = Appender(RETRY_US, record_interval_us=0)
    opened = mark(Kind.WINDOW_OPEN, 0, 5)
    first, second = stable(0, 5), boundary(1, 10)
    appender.add("taken", (opened, boundary(0, 10)))
    appender.add_queue(LoggedStream("full", 0, (first, second)))
    appender.describe(RecoveryRecord(10, 1, (), ()), "S1")
    append = flushed(appender, 0)
    appender.handle(AppendFailed(append.append, "no room", taken=("taken",)), 1)
    assert appender.flush(RETRY_US) == []
    appender.add("taken", (boundary(0, 20),))
    appender.add("full", (boundary(1, 20),))
    again = flushed(appender, 1 + RETRY_US)
    assert dict(again.frames) == {
        "taken": (boundary(0, 20),),
        "full": (first, second, boundary(1, 20)),
    }
    assert again.begins == (("full", 0),)
    assert (again.record, again.state) == (append.record, "S1")
