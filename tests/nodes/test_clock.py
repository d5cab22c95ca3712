"""The machine's clock is set, by a minute or an hour: a node's time, timers and promises."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.clock import Clock, machine_clock
from holdfast.nodes.entry_node import EntryNode
from tests.flight.nodes import make_entry

MINUTE = 60_000_000


class Hands:
    """A machine's clock and its counter, both in the test's hands."""

    def __init__(self) -> None:
        self.clock = 1_000_000_000_000
        self.counter = 5_000_000

    def pass_time(self, us: int) -> None:
        self.clock += us
        self.counter += us

    def make(self, follow: float = 0.05) -> Clock:
        return Clock(follow, lambda: self.clock, lambda: self.counter)


@pytest.mark.parametrize("step", [-60 * MINUTE, -MINUTE, MINUTE, 60 * MINUTE])
def test_a_step_moves_time_by_no_more_than_the_rate(step: int) -> None:
    hands = Hands()
    clock = hands.make()
    before = clock.now()
    hands.clock += step
    for _ in range(1_000):
        hands.pass_time(10_000)
        now = clock.now()
        assert 9_499 <= now - before <= 10_501
        before = now


def test_a_step_is_made_up_for_in_the_end() -> None:
    hands = Hands()
    clock = hands.make()
    hands.clock += 2_000_000
    for _ in range(1_000):
        hands.pass_time(100_000)
        clock.now()
    assert abs(clock.off_us) < 1_000
    hands.clock -= 2_000_000
    for _ in range(1_000):
        hands.pass_time(100_000)
        clock.now()
    assert abs(clock.off_us) < 1_000


def test_time_goes_on_from_where_an_earlier_life_was() -> None:
    hands = Hands()
    clock = hands.make()
    clock.at_least(hands.clock + MINUTE)
    before = clock.now()
    hands.pass_time(1_000_000)
    assert clock.now() - before >= 950_000


def entry_with(directory: Path, machine: Callable[[], int]) -> EntryNode:
    node = make_entry(directory, clock=Clock(machine=machine))
    node.start()
    return node


def wait_for_boundary(node: EntryNode, above: int) -> float:
    """How long it takes, in seconds."""
    started = time.monotonic()
    while node.entry.served.boundary <= above:
        assert time.monotonic() - started < 30.0, "boundaries stand still"
        time.sleep(0.005)
    return time.monotonic() - started


def test_boundaries_go_on_when_the_clock_is_set_back(tmp_path: Path) -> None:
    stepped = [0]
    node = entry_with(tmp_path, lambda: machine_clock() + stepped[0])
    wait_for_boundary(node, 0)
    stepped[0] = -60 * MINUTE
    wait_for_boundary(node, node.entry.served.boundary + 300_000)
    node.stop()
    # So they do in the next life, which begins with a clock that is behind.
    again = entry_with(tmp_path, lambda: machine_clock() + stepped[0])
    wait_for_boundary(again, again.entry.served.boundary + 300_000)
    again.stop()


def test_boundaries_do_not_run_ahead_with_the_clock(tmp_path: Path) -> None:
    stepped = [0]
    node = entry_with(tmp_path, lambda: machine_clock() + stepped[0])
    wait_for_boundary(node, 0)
    started, before = time.monotonic(), node.entry.served.boundary
    stepped[0] = 60 * MINUTE
    wait_for_boundary(node, before + 500_000)
    took_us = (time.monotonic() - started) * 1e6
    assert node.entry.served.boundary - before < 1.06 * took_us + MINUTE / 60
    node.stop()


def test_the_clock_of_a_node_can_be_set_for_trying_out(tmp_path: Path) -> None:
    node = make_entry(tmp_path)
    node.start()
    off_us = node.controls()["clock"]({"step_us": MINUTE})["off_us"]
    assert abs(off_us - MINUTE) < 1_000_000
    assert node.status()["clock_off_s"] == pytest.approx(60, abs=5)
    node.stop()
