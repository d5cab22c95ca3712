"""The parts of the simulated world do to the protocols what they say."""

from __future__ import annotations

from random import Random

from holdfast.core.effects import Append
from holdfast.core.events import RecoveryRecord
from holdfast.core.frame import Kind
from holdfast.core.messages import (
    FeedFrames,
    HeartbeatReply,
    Message,
    Subscribe,
    Unsubscribe,
)
from holdfast.core.settings import SECOND_US, Policy, Reconcile, Timing
from holdfast.simulation import networks
from holdfast.simulation.clock import Clock
from holdfast.simulation.disk import Disk, Write
from holdfast.simulation.executor import Computation, Union
from holdfast.simulation.faults import Fault, FaultKind, Schedule
from holdfast.simulation.layout import place
from holdfast.simulation.network import CALL_US, PATIENCE_US, Network, Quality
from holdfast.simulation.networks import Fragment
from holdfast.simulation.run import Scenario, Verdict, run
from tests.core.frames_for_tests import boundary, kinds, mark, stable, tentative

BEAT = HeartbeatReply((), ())


def make_network(
    quality: Quality | None = None, seed: int = 1
) -> tuple[Clock, Network, list[Message]]:
    clock = Clock()
    network = Network(clock, Random(seed), {"a": "m0", "b": "m1"}, quality)
    arrived: list[Message] = []
    network.deliver = lambda source, target, message: arrived.append(message)
    return clock, network, arrived


def test_things_happen_in_the_order_of_time() -> None:
    clock = Clock()
    seen: list[str] = []
    clock.at(20, seen.append, "late")
    clock.at(10, seen.append, "early")
    clock.at(10, seen.append, "early too")
    clock.run_until(15)
    assert seen == ["early", "early too"]
    assert clock.now == 15


def open_feed(clock: Clock, network: Network, arrived: list[Message]) -> list[int]:
    """``b`` reads from ``a``; returns the list of feeds that ``b`` is told it has lost."""
    told: list[int] = []
    network.lose_feed = lambda reader, feed: told.append(feed)
    network.send("b", "a", Subscribe("s", 7, 0, 0))
    clock.run_until(clock.now + 100_000)
    assert [type(one) for one in arrived] == [Subscribe]
    arrived.clear()
    return told


def frames_in(arrived: list[Message]) -> list[list[str]]:
    return [kinds(one.frames) for one in arrived if isinstance(one, FeedFrames)]


def test_a_connection_keeps_its_order_and_connections_do_not() -> None:
    clock, network, arrived = make_network()
    open_feed(clock, network, arrived)
    for number in range(50):
        network.send("a", "b", FeedFrames(7, number, (boundary(0, number),)))
        network.send("a", "b", BEAT)
    clock.run_until(1_000_000)
    numbers = [one.seq for one in arrived if isinstance(one, FeedFrames)]
    assert numbers == list(range(50))
    assert [type(one).__name__ for one in arrived] != ["FeedFrames", "HeartbeatReply"] * 50


def test_a_feed_loses_nothing_in_a_short_cut() -> None:
    clock, network, arrived = make_network(seed=2)
    told = open_feed(clock, network, arrived)
    network.cut("m0", "m1")
    for number in range(5):
        network.send("a", "b", FeedFrames(7, number, (boundary(0, number),)))
    clock.run_until(clock.now + min(PATIENCE_US) // 2)
    assert arrived == []
    network.heal("m0", "m1")
    clock.run_until(clock.now + 1_000_000)
    assert [one.seq for one in arrived if isinstance(one, FeedFrames)] == list(range(5))
    assert told == []


def test_a_feed_breaks_in_a_long_cut_and_both_ends_are_told() -> None:
    clock, network, arrived = make_network()
    told = open_feed(clock, network, arrived)
    network.cut("m0", "m1")
    network.send("a", "b", FeedFrames(7, 0, (boundary(0, 1),)))
    clock.run_until(clock.now + max(PATIENCE_US) + 3_000_000)
    assert told == [7]
    assert arrived == [Unsubscribe(7)], "the provider hears that its reader is gone"
    network.heal("m0", "m1")
    clock.run_until(clock.now + 1_000_000)
    assert frames_in(arrived) == []


def test_a_feed_to_a_process_that_is_gone_is_lost_after_a_pause_that_grows() -> None:
    clock, network, _ = make_network()
    told: list[int] = []
    network.lose_feed = lambda reader, feed: told.append(clock.now)
    for number in range(8):
        began = clock.now
        network.send("b", "a", Subscribe("s", number, 0, 0))
        clock.run_until(clock.now + 20_000)
        network.refuse("b", number)
        clock.run_until(clock.now + 3_000_000)
        told[-1] -= began
    assert told == sorted(told)
    assert told[0] < 200_000 < 2_000_000 < told[-1] < 2_100_000


LARGE = FeedFrames(
    7,
    0,
    (
        stable(0, 1, 2, 3),
        stable(3, 4, 5, 6),
        boundary(6, 10),
        tentative(6, 11, 12, 13),
        mark(Kind.TENTATIVE_BOUNDARY, 6, 20),
        tentative(9, 21, 22, 23),
        mark(Kind.TENTATIVE_BOUNDARY, 6, 30),
    ),
)


def test_a_large_message_is_handed_on_in_pieces() -> None:
    clock, network, arrived = make_network(Quality(piece_rows=3))
    open_feed(clock, network, arrived)
    network.send("a", "b", LARGE)
    clock.run_until(1_000_000)
    assert frames_in(arrived) == [
        ["STABLE"],
        ["STABLE"],
        ["BOUNDARY", "TENTATIVE", "TENTATIVE_BOUNDARY"],
        ["TENTATIVE", "TENTATIVE_BOUNDARY"],
    ]
    assert [one.seq for one in arrived if isinstance(one, FeedFrames)] == [0, 1, 2, 3]
    assert network.counts["split message"] == 1


def test_a_connection_breaks_between_two_pieces() -> None:
    clock, network, arrived = make_network(Quality(piece_rows=3, breaks=1.0))
    told = open_feed(clock, network, arrived)
    network.send("a", "b", LARGE)
    clock.run_until(3_000_000)
    assert 1 <= len(frames_in(arrived)) <= 3
    assert told == [7]
    assert network.counts["broken connection mid-message"] == 1


def test_a_cut_loses_one_direction_and_what_is_on_its_way() -> None:
    clock, network, arrived = make_network()
    network.send("a", "b", BEAT)
    network.cut("m0", "m1")
    network.send("a", "b", BEAT)
    network.send("b", "a", BEAT)
    clock.run_until(CALL_US)
    assert len(arrived) == 1
    network.heal("m0", "m1")
    network.send("a", "b", BEAT)
    clock.run_until(2 * CALL_US)
    assert len(arrived) == 2


def test_a_call_may_be_late_but_not_later_than_its_deadline() -> None:
    counts = set()
    for seed in range(20):
        clock, network, arrived = make_network(seed=seed)
        network.cut("m0", "m1")
        network.send("a", "b", BEAT)
        clock.run_until(CALL_US // 2)
        network.heal("m0", "m1")
        clock.run_until(CALL_US)
        counts.add(len(arrived))
    assert counts == {0, 1}


def test_losing_connections_loses_only_what_is_on_its_way() -> None:
    clock, network, arrived = make_network()
    network.send("a", "b", BEAT)
    network.lose_connections("m0", "m1")
    clock.run_until(1)
    network.send("a", "b", BEAT)
    clock.run_until(1_000_000)
    assert len(arrived) == 1


def append_of(number: int) -> Write:
    frames = (stable(number, 10), boundary(number + 1, 20))
    order = Append(number, (("o", frames),), RecoveryRecord(number, 0, (), ()))
    return Write.of(order, None)


def test_a_crash_keeps_a_prefix_of_the_steps_of_an_append() -> None:
    outcomes = set()
    for seed in range(200):
        disk = Disk(Random(seed))
        disk.begin(append_of(0))
        disk.crash()
        if disk.record is not None:
            assert disk.frame_count() == 2, "the record never comes before its frames"
        outcomes.add((disk.frame_count(), disk.record is not None))
        # Tuples without a boundary do not count: they are computed again.
        whole = ["STABLE", "BOUNDARY"] if disk.frame_count() == 2 else []
        assert kinds(disk.open("o").frames) == whole
    assert outcomes == {(0, False), (1, False), (2, False), (2, True)}


def test_a_full_disk_fails_appends_and_keeps_what_it_has() -> None:
    disk = Disk(Random(1))
    disk.begin(append_of(0))
    assert disk.finish(append_of(0)) is None
    disk.full = True
    assert disk.finish(append_of(1)) == ()
    assert disk.record == append_of(0).record
    before = append_of(0).frames[0][1]
    assert disk.open("o").frames[: len(before)] == before


def test_trimming_never_moves_the_end_of_a_log() -> None:
    disk = Disk(Random(1))
    disk.finish(append_of(0))
    disk.trim("o", 99)
    assert disk.open("o").first_id == 1
    assert kinds(disk.open("o").frames) == ["BOUNDARY"]


def one_input_is_away(redo_buckets: int) -> Scenario:
    """One replica merges two streams; one of them is away for half a minute."""
    timing = Timing(bucket_us=250_000, delay_us=2 * SECOND_US, redo_buckets=redo_buckets)
    plan = Computation((("f00.0", Union(("s0", "s1"))),))
    policy = Policy.PROCESS
    fragment = Fragment("f00", plan, ("f00a",), policy, policy, Reconcile.RESTORE)
    spec = networks.build(timing, ("s0", "s1"), (fragment,), ("f00.0",), job_us=87_500)
    away = Fault(FaultKind.PARTITION, 5 * SECOND_US, 35 * SECOND_US, ("e0",))
    schedule = Schedule((away,), away.end + spec.calm_us)
    return Scenario(1, spec, place(spec, Random(1)), schedule)


def test_a_run_ends_when_all_is_well_however_slow_the_engine() -> None:
    fast, slow = (run(one_input_is_away(buckets)) for buckets in (20, 1))
    assert [fast.reason, slow.reason] == ["", ""]
    assert fast.verdict is slow.verdict is Verdict.FINE
    latest_s = one_input_is_away(1).schedule.end / SECOND_US
    assert 35 < fast.simulated_s < 60 < slow.simulated_s < latest_s
