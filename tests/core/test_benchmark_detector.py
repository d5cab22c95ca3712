"""Is a machine fast enough, by a standard set of data."""

from __future__ import annotations

from holdfast.core.benchmark_detector import BenchmarkDetector, LoadSeen, SetTimed
from holdfast.core.detector import AskPeer, PeerBack, PeerLost, PeerState


def make() -> BenchmarkDetector:
    made = BenchmarkDetector("a", 50, 0.9, 2.0, "a")
    assert made.handle(LoadSeen(1.0), 0) == []  # nothing to compare with yet
    assert made.handle(SetTimed(1_000), 10) == [PeerBack("a")]
    return made


def test_the_set_is_timed_only_under_load() -> None:
    made = make()
    assert made.handle(LoadSeen(0.5), 100) == []
    assert made.handle(LoadSeen(0.95), 200) == [AskPeer("a")]
    assert made.handle(LoadSeen(0.95), 300) == []  # one at a time
    assert made.handle(SetTimed(1_900), 310) == []
    assert made.state is PeerState.UP


def test_a_slow_set_under_load_is_a_failure_until_it_is_quick_again() -> None:
    made = make()
    made.handle(LoadSeen(0.95), 200)
    assert made.handle(SetTimed(2_100), 210) == [PeerLost("a")]
    assert not made.reachable
    assert made.handle(LoadSeen(0.99), 300) == [AskPeer("a")]
    assert made.handle(SetTimed(3_000), 310) == []
    made.handle(LoadSeen(0.99), 400)
    assert made.handle(SetTimed(1_500), 410) == [PeerBack("a")]


def test_a_set_that_is_not_through_in_time_is_too_slow() -> None:
    made = make()
    made.handle(LoadSeen(0.95), 200)
    assert made.handle(LoadSeen(0.95), 2_200) == []
    assert made.handle(LoadSeen(0.2), 2_300) == [PeerLost("a")]
    assert made.handle(LoadSeen(0.2), 2_400) == []
    assert made.handle(SetTimed(1_500), 2_450) == [PeerBack("a")]


def test_the_quickest_time_is_the_benchmark() -> None:
    made = make()
    made.handle(LoadSeen(0.95), 200)
    assert made.handle(SetTimed(400), 210) == []
    made.handle(LoadSeen(0.95), 300)
    assert made.handle(SetTimed(900), 310) == [PeerLost("a")]


def test_low_load_ends_a_failure() -> None:
    made = make()
    made.handle(LoadSeen(0.95), 200)
    made.handle(SetTimed(2_100), 210)
    assert made.handle(LoadSeen(0.2), 300) == [PeerBack("a")]


def test_a_slow_set_is_a_failure_though_the_load_seems_low_meanwhile() -> None:
    made = make()
    made.handle(LoadSeen(0.95), 200)
    assert made.handle(LoadSeen(0.2), 260) == []
    assert made.handle(SetTimed(5_000), 300) == [PeerLost("a")]
