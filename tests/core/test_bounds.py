"""What is kept for somebody who is away has a bound, where one is set."""

from __future__ import annotations

from holdfast.core.bounds import BoundWatch, Standing
from holdfast.core.effects import TrimLog
from holdfast.core.frame import Header, Kind, StreamFrame
from holdfast.core.serving import ServedStream
from holdfast.core.settings import SECOND_US, Bound, Then

RETIRE = Bound(1_000, None, Then.RETIRE, 10 * SECOND_US, (("main-1", "main-2"),))


def stream(*consumers: str) -> ServedStream:
    """Ten tuples, one a second."""
    served = ServedStream("s", consumers)
    for number in range(10):
        stime = number * SECOND_US
        header = Header(Kind.STABLE, number, 1, stime, stime, stime)
        served.publish((StreamFrame(header, object()),))
    return served


def watching(bound: Bound, *there: str, at: int) -> BoundWatch:
    watch = BoundWatch({"s": bound})
    watch.look({"s": stream()}, {}, 0)
    for name in there:
        watch.heard(name, at)
    return watch


def test_nothing_more_is_kept_for_a_replica_that_is_away_while_another_is_there() -> None:
    served = stream("main-1", "main-2")
    served.acknowledge("main-1", 8, 0)
    served.acknowledge("main-2", 3, 0)
    now = 60 * SECOND_US
    watch = watching(RETIRE, "main-1", at=now)
    assert watch.look({"s": served}, {"s": 1_000}, now) == [], "it is within its bound"
    assert watch.look({"s": served}, {"s": 1_001}, now) == [TrimLog("s", 8)]
    found = watch.found["s"]
    assert (found.standing, found.text) == (
        Standing.LAPSED, "s is not kept for main-2 any more, away for too long",
    )  # fmt: skip
    served.validate()
    # It is back, and counts again from here on.
    assert served.acknowledge("main-2", 3, now) == []
    assert served.acknowledgements.needs() == {"main-1": 8, "main-2": 8}
    assert watch.look({"s": served}, {"s": 10}, now) == []
    assert watch.found["s"].standing is Standing.WITHIN


def test_the_last_replica_of_a_fragment_is_kept_for() -> None:
    served, now = stream("main-1", "main-2"), 60 * SECOND_US
    watch = watching(RETIRE, at=now)
    assert watch.look({"s": served}, {"s": 2_000_000}, now) == []
    found = watch.found["s"]
    assert found.standing is Standing.BLOCKED
    assert found.text == (
        "s keeps 2.0 MB of 0.0 for main-1, which is away; no other replica of its fragment is there"
    )


def test_who_is_there_is_kept_for_however_slow_it_is() -> None:
    served, now = stream("client"), 60 * SECOND_US
    watch = watching(RETIRE, "client", at=now)
    assert watch.look({"s": served}, {"s": 2_000}, now) == []
    assert watch.found["s"].standing is Standing.WITHIN


def test_a_client_that_is_away_is_let_go_of_by_age_and_nothing_is_kept_then() -> None:
    served = stream("client")
    now = 40 * SECOND_US
    watch = watching(Bound(None, 30 * SECOND_US, Then.RETIRE), at=now)
    assert watch.look({"s": served}, {}, 29 * SECOND_US) == []
    assert watch.look({"s": served}, {}, now) == [TrimLog("s", 10)]
    header = Header(Kind.STABLE, 10, 1, now, now, now)
    assert served.publish((StreamFrame(header, object()),)) == [TrimLog("s", 11)]
    # It is back: what comes is kept for it.
    served.acknowledge("client", 2, now)
    header = Header(Kind.STABLE, 11, 1, now, now, now)
    assert served.publish((StreamFrame(header, object()),)) == []
    assert served.first_id == 11


def test_a_source_waits_where_it_is_to_be_blocked() -> None:
    served, now = stream("client"), 60 * SECOND_US
    watch = watching(Bound(1_000_000, None, Then.BLOCK), at=now)
    assert watch.look({"s": served}, {"s": 1_100_000}, now) == []
    found = watch.found["s"]
    assert found.standing is Standing.BLOCKED
    assert found.text == "s keeps 1.1 MB of 1.0 for client, which is away"
    watch.heard("client", now)
    watch.look({"s": served}, {"s": 1_100_000}, now)
    assert watch.found["s"].standing is Standing.WITHIN, "it is back"
