"""What is kept for somebody who is away has a bound, where one is set."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.bounds import BoundWatch, Standing
from holdfast.core.effects import TrimLog
from holdfast.core.events import KeptMeasured
from holdfast.core.frame import Header, Kind, StreamFrame
from holdfast.core.messages import HeartbeatRequest, StreamState
from holdfast.core.provider import Provider
from holdfast.core.records import Membership
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


NAMES = ("client", "main-1", "main-2", "main-3", "main-4", "new-1", "new-2")


def watching(bound: Bound, *there: str, at: int, known: tuple[str, ...] = NAMES) -> BoundWatch:
    """One that has kept something for all who are known since the beginning."""
    watch = BoundWatch({"s": bound})
    watch.look({"s": stream(*known)}, {}, 0)
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


MOVED = (
    Membership()
    .with_another("main-3", "main-1")
    .without("main-1")
    .with_another("main-4", "main-2")
    .without("main-2")
)


def test_replicas_that_have_moved_are_those_of_the_fragment() -> None:
    """Whoever began before they came knows of the others only."""
    served, now = stream("main-3", "main-4"), 60 * SECOND_US
    served.acknowledge("main-3", 8, 0)
    served.acknowledge("main-4", 3, 0)
    watch = watching(RETIRE, at=now)
    assert watch.look({"s": served}, {"s": 2_000_000}, now, membership=MOVED) == []
    found = watch.found["s"]
    assert found.standing is Standing.BLOCKED, "nobody could feed the fragment's state"
    assert "for main-4, which is away; no other replica of its fragment is there" in found.text
    # With one that is there the other one may go.
    watch.heard("main-3", now)
    trimmed = watch.look({"s": served}, {"s": 2_000_000}, now, membership=MOVED)
    assert trimmed == [TrimLog("s", 8)]
    assert watch.found["s"].standing is Standing.LAPSED


def test_a_replica_that_was_added_is_another_one_of_the_fragment() -> None:
    served, now = stream("main-1", "main-2", "main-3", "main-4"), 60 * SECOND_US
    for name in ("main-2", "main-3"):
        served.acknowledge(name, 8, 0)
    served.acknowledge("main-4", 9, 0)
    watch = watching(RETIRE, "main-4", at=now)
    added = Membership().with_another("main-3", "main-1").with_another("main-4", "main-3")
    watch.look({"s": served}, {"s": 2_000_000}, now, membership=added)
    assert served.acknowledgements.lapsed == {"main-1"}, "main-4 is there"


def test_a_new_shard_is_kept_for_and_is_no_client() -> None:
    """Which others are of the same new shard only those know that began after it."""
    served, now = stream("main-1", "main-2", "new-1", "new-2"), 60 * SECOND_US
    for name in ("main-1", "main-2"):
        served.acknowledge(name, 9, 0)
    watch = watching(RETIRE, "main-1", "main-2", at=now)
    membership = Membership().with_shards([("new-1", "main-1"), ("new-2", "main-1")], [])
    assert watch.look({"s": served}, {"s": 2_000_000}, now, membership=membership) == []
    assert watch.found["s"].standing is Standing.BLOCKED
    # One that is added like it is another one of the same.
    membership = membership.with_another("new-3", "new-1")
    watch.heard("new-3", now)
    watch.look({"s": served}, {"s": 2_000_000}, now, membership=membership)
    assert served.acknowledgements.lapsed == {"new-1"}


def test_one_that_has_just_been_added_is_not_away() -> None:
    served, now = stream("main-1", "main-2"), 60 * SECOND_US
    watch = watching(RETIRE, "main-1", "main-2", at=now, known=("main-1", "main-2"))
    for name in ("main-1", "main-2"):
        served.acknowledge(name, 8, 0)
    served.acknowledgements.take_in("main-3")
    added = Membership().with_another("main-3", "main-1")
    served.publish((StreamFrame(Header(Kind.STABLE, 10, 1, now, now, now), object()),))
    watch.look({"s": served}, {"s": 2_000_000}, now, membership=added)
    assert not served.acknowledgements.lapsed, "it had no time to say a word"
    for name in ("main-1", "main-2"):
        watch.heard(name, now + 11 * SECOND_US)
        served.acknowledge(name, 9, now)
    watch.look({"s": served}, {"s": 2_000_000}, now + 11 * SECOND_US, membership=added)
    assert served.acknowledgements.lapsed == {"main-3"}


def test_one_that_was_added_and_never_heard_of_is_not_there_either() -> None:
    """It has nothing yet: nobody lapses because of it."""
    served, now = stream("main-1", "main-2"), 60 * SECOND_US
    served.acknowledgements.take_in("main-3")
    added = Membership().with_another("main-3", "main-1")
    watch = watching(RETIRE, at=now, known=("main-1", "main-2"))
    watch.look({"s": served}, {"s": 2_000_000}, now, membership=added)
    assert served.acknowledgements.lapsed == set()
    assert watch.found["s"].standing is Standing.BLOCKED


def test_one_that_joins_is_there_and_has_no_state() -> None:
    served, now = stream("main-1", "main-2", "main-3"), 60 * SECOND_US
    for name, needed in (("main-2", 8), ("main-3", 9)):
        served.acknowledge(name, needed, 0)
    bound = replace(RETIRE, fragments=(("main-1", "main-2", "main-3"),))
    watch = watching(bound, at=now)
    watch.heard("main-2", now, joins=True)
    watch.look({"s": served}, {"s": 2_000_000}, now)
    assert served.acknowledgements.lapsed == set()
    assert watch.found["s"].standing is Standing.BLOCKED
    # It has joined.
    watch.heard("main-2", now)
    watch.look({"s": served}, {"s": 2_000_000}, now)
    assert served.acknowledgements.lapsed == {"main-1"}


def test_who_joins_says_so_with_its_heartbeats() -> None:
    served, now = stream("main-1", "main-2"), 60 * SECOND_US
    watch = watching(RETIRE, at=now)
    provider = Provider({"s": served}, lambda stream: StreamState.STABLE, watch=watch)
    measured = KeptMeasured((("s", 2_000_000),))
    # One that joins holds, and acknowledges nothing.
    provider.handle("main-2", HeartbeatRequest(("s",), (), (), 0), now)
    provider.look(measured, now)
    assert served.acknowledgements.lapsed == set()
    provider.handle("main-2", HeartbeatRequest(("s",), (("s", 3),), (), 0), now)
    provider.look(measured, now)
    assert served.acknowledgements.lapsed == {"main-1"}


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


def test_how_long_a_tuple_is_kept_counts_not_the_time_it_carries() -> None:
    """A file of last year is replayed; what it has comes now."""
    minute, year = 60 * SECOND_US, 365 * 24 * 3600 * SECOND_US
    served = stream("client")
    watch = BoundWatch({"s": Bound(None, minute, Then.RETIRE)})
    for now in range(year, year + minute + 1, SECOND_US):
        assert watch.look({"s": served}, {}, now) == []
        assert watch.found["s"].standing is Standing.WITHIN
    # And a minute later it has been kept for too long; what came since has not.
    header = Header(Kind.STABLE, 10, 1, 0, 0, 0)
    served.publish((StreamFrame(header, object()),))
    assert watch.look({"s": served}, {}, year + minute + SECOND_US) == [TrimLog("s", 11)]


def test_so_it_is_with_tentative_tuples() -> None:
    minute, year = 60 * SECOND_US, 365 * 24 * 3600 * SECOND_US
    served = provisional(100, 100)
    watch = BoundWatch({"s": Bound(None, minute, Then.DROP)})
    watch.look({"s": served}, {}, year)
    header = Header(Kind.TENTATIVE, 1, 50, 0, 0, 0)
    served.publish((StreamFrame(header, object()),))
    watch.look({"s": served}, {}, year + minute // 2)
    assert served.dropped == 0
    watch.look({"s": served}, {}, year + minute + 1)
    assert (served.dropped, len(served.tentative)) == (200, 1)
    watch.look({"s": served}, {}, year + 2 * minute)
    assert (served.dropped, len(served.tentative)) == (250, 0)


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


def provisional(*counts: int) -> ServedStream:
    """A stable tuple, then tentative frames of so many tuples, one frame a second."""
    served = ServedStream("s", ("client",))
    header = Header(Kind.STABLE, 0, 1, 0, 0, 0)
    served.publish((StreamFrame(header, object()),))
    for number, count in enumerate(counts, 1):
        stime = number * SECOND_US
        header = Header(Kind.TENTATIVE, 1, count, stime, stime, stime)
        served.publish((StreamFrame(header, object()),))
    return served


def test_tentative_tuples_beyond_a_bound_are_dropped_oldest_first_and_said() -> None:
    served, now = provisional(100, 100, 100, 100), 5 * SECOND_US
    watch = BoundWatch({"s": Bound(1_000, None, Then.DROP)})
    watch.look({"s": served}, {"s": 900}, now, {"s": 1_000})
    assert (len(served.tentative), watch.beyond) == (4, "")
    # A third of them is beyond it, and frames go whole.
    watch.look({"s": served}, {"s": 900}, now, {"s": 1_500})
    assert [frame.header.stime_min // SECOND_US for frame in served.tentative] == [3, 4]
    assert watch.found["s"].standing is Standing.DROPPED
    assert "s: the oldest 200 tentative tuples were dropped" in watch.beyond
    assert not watch.blocked
    # Stable ones have come in their place: nothing is wrong any more, and it is still counted.
    mark = Header(Kind.BOUNDARY, 1, 0, now, now, now)
    served.publish((StreamFrame(mark),))
    watch.look({"s": served}, {"s": 900}, now, {})
    assert (watch.beyond, served.dropped) == ("", 200)


def test_of_stable_tuples_none_is_dropped() -> None:
    served, now = provisional(100), 60 * SECOND_US
    watch = watching(Bound(1_000, 30 * SECOND_US, Then.DROP), at=now)
    watch.look({"s": served}, {"s": 500}, now - 30 * SECOND_US, {"s": 100})
    assert watch.look({"s": served}, {"s": 2_000_000}, now, {"s": 100}) == []
    assert served.tentative, "they have been here for as long as they may"
    assert watch.look({"s": served}, {"s": 2_000_000}, now + 1, {"s": 100}) == []
    assert len(served.stable) == 1
    assert not served.tentative
    found = watch.found["s"]
    assert found.standing is Standing.BLOCKED
    assert found.text == "s keeps 2.0 MB of 0.0 for client, which is away"


def test_tentative_frames_beyond_what_may_be_listed_are_counted() -> None:
    served = ServedStream("s", (), tentative_frames=2)
    for stime in (1, 2, 3):
        header = Header(Kind.TENTATIVE, 0, 10, stime, stime, stime)
        served.publish((StreamFrame(header, object()),))
    assert (len(served.tentative), served.dropped, served.crowded_out) == (2, 10, 10)
    served.drop_tentative(10, 0)
    assert (served.dropped, served.crowded_out) == (20, 10), "those went for another reason"
    header = Header(Kind.BOUNDARY, 0, 0, 9, 9, 9)
    served.publish((StreamFrame(header),))
    assert (served.dropped, served.crowded_out) == (20, 0)
