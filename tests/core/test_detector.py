from __future__ import annotations

from holdfast.core.detector import (
    AskPeer,
    FailureDetector,
    PeerBack,
    PeerLost,
    PeerState,
    Replied,
    TimePassed,
    Unreachable,
)


def make() -> FailureDetector:
    return FailureDetector("b", interval_us=100, misses_until_down=3, owner="a")


def test_asks_at_its_interval() -> None:
    detector = make()
    assert detector.handle(TimePassed(), 0) == [AskPeer("b")]
    assert detector.handle(TimePassed(), 99) == []
    assert detector.handle(TimePassed(), 100) == [AskPeer("b")]


def test_suspects_after_one_miss_and_gives_up_after_three() -> None:
    detector = make()
    detector.handle(TimePassed(), 0)
    assert detector.handle(Replied(), 10) == [PeerBack("b")]
    detector.handle(TimePassed(), 100)
    detector.handle(TimePassed(), 200)
    assert detector.state is PeerState.SUSPECTED
    assert detector.reachable
    detector.handle(TimePassed(), 300)
    assert detector.handle(TimePassed(), 400) == [PeerLost("b"), AskPeer("b")]
    assert not detector.reachable
    assert detector.handle(TimePassed(), 500) == [AskPeer("b")], "it keeps asking"
    assert detector.handle(Replied(), 510) == [PeerBack("b")]
    detector.validate()


def test_a_long_absence_of_its_own_is_one_miss() -> None:
    detector = make()
    detector.handle(TimePassed(), 0)
    detector.handle(Replied(), 10)
    detector.handle(TimePassed(), 100)
    detector.handle(TimePassed(), 1_000_000)
    assert detector.state is PeerState.SUSPECTED


def test_a_late_answer_is_an_answer() -> None:
    detector = make()
    for now in range(0, 500, 100):
        detector.handle(TimePassed(), now)
    assert detector.state is PeerState.DOWN
    assert detector.handle(Replied(), 499) == [PeerBack("b")]


def test_a_question_that_cannot_be_put_is_a_miss_at_once() -> None:
    detector = FailureDetector("b", interval_us=100, misses_until_down=2, owner="a")
    detector.handle(TimePassed(), 0)
    detector.handle(Replied(), 10)
    detector.handle(TimePassed(), 100)
    assert detector.handle(Unreachable(), 101) == []
    assert detector.state is PeerState.SUSPECTED
    assert detector.handle(Unreachable(), 102) == [], "once for each question"
    assert detector.handle(TimePassed(), 200) == [AskPeer("b")]
    assert detector.handle(Unreachable(), 201) == [PeerLost("b")]
    detector.validate()
