"""The parts of the simulated world do to the protocols what they say."""

from __future__ import annotations

from random import Random

from holdfast.core.effects import Append
from holdfast.core.events import RecoveryRecord
from holdfast.core.messages import HeartbeatReply, Message, Unsubscribe
from holdfast.core.settings import SECOND_US, Policy, Reconcile, Timing
from holdfast.simulation import networks
from holdfast.simulation.clock import Clock
from holdfast.simulation.disk import Disk
from holdfast.simulation.executor import Plan, Union
from holdfast.simulation.network import Network
from holdfast.simulation.networks import Fragment
from holdfast.simulation.run import Scenario, Verdict, run
from holdfast.simulation.schedules import Fault, FaultKind, Schedule
from holdfast.simulation.world import place
from tests.core.frames_for_tests import boundary, kinds, stable

BEAT = HeartbeatReply((), ())


def make_network() -> tuple[Clock, Network, list[Message]]:
    clock = Clock()
    network = Network(clock, Random(1), {"a": "m0", "b": "m1"})
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


def test_a_connection_keeps_its_order_and_connections_do_not() -> None:
    clock, network, arrived = make_network()
    for number in range(50):
        network.send("a", "b", Unsubscribe(number))
        network.send("a", "b", BEAT)
    clock.run_until(1_000_000)
    numbers = [one.feed for one in arrived if isinstance(one, Unsubscribe)]
    assert numbers == list(range(50))
    assert [type(one).__name__ for one in arrived] != ["Unsubscribe", "HeartbeatReply"] * 50


def test_a_cut_loses_one_direction_and_what_is_on_its_way() -> None:
    clock, network, arrived = make_network()
    network.send("a", "b", BEAT)
    network.cut("m0", "m1")
    network.send("a", "b", BEAT)
    network.send("b", "a", BEAT)
    clock.run_until(1_000_000)
    assert len(arrived) == 1
    network.heal("m0", "m1")
    network.send("a", "b", BEAT)
    clock.run_until(2_000_000)
    assert len(arrived) == 2


def test_losing_connections_loses_only_what_is_on_its_way() -> None:
    clock, network, arrived = make_network()
    network.send("a", "b", BEAT)
    network.lose_connections("m0", "m1")
    clock.run_until(1)
    network.send("a", "b", BEAT)
    clock.run_until(1_000_000)
    assert len(arrived) == 1


def append_of(number: int) -> Append:
    frames = (stable(number, 10), boundary(number + 1, 20))
    return Append(number, (("o", frames),), RecoveryRecord(number, 0, (), ()))


def test_a_crash_keeps_a_prefix_of_the_steps_of_an_append() -> None:
    outcomes = set()
    for seed in range(200):
        disk = Disk(Random(seed))
        disk.begin(append_of(0))
        disk.crash()
        found = kinds(disk.open("o").frames)
        assert found in ([], ["STABLE"], ["STABLE", "BOUNDARY"])
        if disk.record is not None:
            assert found == ["STABLE", "BOUNDARY"], "the record never comes before its frames"
        outcomes.add((len(found), disk.record is not None))
    assert outcomes == {(0, False), (1, False), (2, False), (2, True)}


def test_a_full_disk_fails_appends_and_keeps_what_it_has() -> None:
    disk = Disk(Random(1))
    disk.begin(append_of(0))
    assert disk.finish(append_of(0))
    disk.full = True
    assert not disk.finish(append_of(1))
    assert disk.open("o").frames == append_of(0).frames[0][1]


def test_trimming_never_moves_the_end_of_a_log() -> None:
    disk = Disk(Random(1))
    disk.finish(append_of(0))
    disk.trim("o", 99)
    assert disk.open("o").first_id == 1
    assert kinds(disk.open("o").frames) == ["BOUNDARY"]


def one_input_is_away(redo_buckets: int) -> Scenario:
    """One replica merges two streams; one of them is away for half a minute."""
    timing = Timing(bucket_us=250_000, delay_us=2 * SECOND_US, redo_buckets=redo_buckets)
    plan = Plan((("f00.0", Union(("s0", "s1"))),))
    policy = Policy.PROCESS
    fragment = Fragment("f00", plan, ("f00a",), policy, policy, Reconcile.CHECKPOINT)
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
