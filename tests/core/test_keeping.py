"""What a disk takes of what it is given, and what it counts as having when it is opened."""

from __future__ import annotations

import pytest

from holdfast.core.copy import Copy
from holdfast.core.frame import Kind, StreamFrame
from holdfast.core.keeping import standing
from holdfast.core.records import Found, LoggedStream, RecoveryRecord
from holdfast.core.settings import Input, Output, ReplicaSettings
from tests.core.frames_for_tests import boundary, kinds, mark, stable

RECORD = RecoveryRecord(100, 100, (("s", 7),), (("o", 5),))


def test_a_gap_begins_the_stream_anew_once_a_boundary_says_when_that_is() -> None:
    log = (
        stable(0, 10, 20),
        boundary(2, 50),
        mark(Kind.SKIP, 9),
        stable(9, 200),
        boundary(10, 210),
    )
    found = standing("o", 0, log)
    assert found is not None
    assert (found.first_id, kinds(found.frames)) == (9, ["STABLE", "BOUNDARY"])


@pytest.mark.parametrize(
    ("first_id", "log"),
    [
        # An order that skips was cut short: by a crash, or by a disk that had no more room.
        (0, (stable(0, 10, 20), boundary(2, 50), mark(Kind.SKIP, 9))),
        (0, (stable(0, 10, 20), boundary(2, 50), mark(Kind.SKIP, 9), stable(9, 200))),
        # The last boundary was before what a crash left of an append, and that was trimmed.
        (4, (boundary(2, 50),)),
        (0, ()),
    ],
)
def test_a_stream_that_does_not_know_when_it_ends_goes_on_at_the_record(
    first_id: int, log: tuple[StreamFrame, ...]
) -> None:
    assert standing("o", first_id, log) is None
    settings = ReplicaSettings(
        "a", (Input("s", ("entry",)),), (Output("o", frozenset(["s"]), ("client",)),)
    )
    copy = Copy(settings, Found(RECORD, None, (LoggedStream("o", 0, ()),)))
    served = copy.served["o"]
    assert (served.next_id, served.boundary, served.first_id) == (5, 100, 5)


def test_a_log_that_is_further_than_the_record_counts() -> None:
    log = (stable(4, 90), boundary(5, 100), stable(5, 110), boundary(6, 120))
    found = standing("o", 4, log)
    assert found is not None
    settings = ReplicaSettings(
        "a", (Input("s", ("entry",)),), (Output("o", frozenset(["s"]), ("client",)),)
    )
    served = Copy(settings, Found(RECORD, None, (found,))).served["o"]
    assert (served.next_id, served.boundary, served.first_id) == (6, 120, 4)
