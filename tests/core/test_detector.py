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


def make_patient() -> FailureDetector:
    """One miss is too often; the peer has answered."""
    detector = FailureDetector("b", interval_us=100, misses_until_down=1, owner="a", patient=True)
    detector.handle(TimePassed(), 0)
    detector.handle(Replied(), 2)
    return detector


def ask_and_answer(detector: FailureDetector, after_us: int, times: int) -> int:
    """So many questions, each answered after a while; when the next is due."""
    for _ in range(times):
        now = detector.next_ask_at
        assert detector.handle(TimePassed(), now) == [AskPeer("b")]
        while now < detector.next_ask_at < now + after_us:
            assert detector.handle(TimePassed(), detector.next_ask_at) == []
        detector.handle(Replied(), now + after_us)
    return detector.next_ask_at


def test_a_quick_peer_is_missed_after_one_interval() -> None:
    detector = make_patient()
    now = ask_and_answer(detector, 5, 20)
    assert detector.handle(TimePassed(), now) == [AskPeer("b")]
    assert detector.handle(TimePassed(), now + 99) == []
    assert detector.handle(TimePassed(), now + 100) == [PeerLost("b"), AskPeer("b")]
    detector.validate()


def test_a_slow_peer_is_given_time_but_no_more_than_three_intervals() -> None:
    detector = make_patient()
    now = ask_and_answer(detector, 80, 4)
    now = ask_and_answer(detector, 130, 5)
    assert 130 < detector.patience_us <= 300
    detector.handle(TimePassed(), now)
    assert detector.handle(TimePassed(), now + 130) == []
    assert detector.handle(TimePassed(), now + 300) == [PeerLost("b"), AskPeer("b")]
    before = detector.patience_us
    detector.handle(Replied(), now + 10_000)
    assert detector.patience_us == before, "an outage is no measure of answers"
    ask_and_answer(detector, 5, 20)
    assert detector.patience_us == 100, "slow answers are forgotten"


def test_a_detector_that_comes_late_itself_first_takes_what_came() -> None:
    detector = make_patient()
    now = ask_and_answer(detector, 5, 3)
    detector.handle(TimePassed(), now)
    assert detector.handle(TimePassed(), now + 190) == [], "late, but not away"
    detector.handle(Replied(), now + 191)
    assert detector.reachable
    now = ask_and_answer(detector, 5, 20)
    detector.handle(TimePassed(), now)
    assert detector.handle(TimePassed(), now + 190) == []
    assert detector.handle(TimePassed(), now + 215) == [PeerLost("b"), AskPeer("b")]


def test_an_absence_of_its_own_is_no_miss_where_one_is_too_often() -> None:
    detector = make_patient()
    now = ask_and_answer(detector, 5, 3)
    detector.handle(TimePassed(), now)
    assert detector.handle(TimePassed(), now + 1_000) == [AskPeer("b")]
    assert detector.reachable
