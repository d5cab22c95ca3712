"""The parts of the simulated world do to the protocols what they say."""

from __future__ import annotations

from random import Random

from holdfast.core.effects import Append
from holdfast.core.events import RecoveryRecord
from holdfast.core.messages import HeartbeatReply, Message, Unsubscribe
from holdfast.simulation.clock import Clock
from holdfast.simulation.disk import Disk
from holdfast.simulation.network import Network
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
