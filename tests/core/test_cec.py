"""The checkpointer against a model that knows every window."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.continuous import (
    CecEffect,
    CecState,
    Checked,
    Checkpointer,
    CheckWindows,
    LookAtWindows,
    Looked,
    Measured,
    RoundFailed,
    StateReached,
)
from holdfast.core.machine import ProtocolError
from holdfast.core.settings import Continuous


@dataclass
class Fragment:
    """Windows open and close at random; every window state and result is a frame in the log."""

    settings: Continuous
    rng: random.Random
    closing: float = 0.3
    frame_us: int = 1
    step_us: int = 200_000
    time: int = 0
    now: int = 0
    frames: int = 0
    inputs: int = 0
    next_window: int = 0
    # window -> when it was written last, and (frames, inputs) before that
    windows: dict[int, int] = field(default_factory=dict)
    written: dict[int, list[int]] = field(default_factory=dict)
    before: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.machine = Checkpointer("test", self.settings, 0)

    def advance(self, inputs: int, opened: int) -> None:
        self.time += 100
        self.now += self.step_us
        gone = [each for each in self.windows if self.rng.random() < self.closing]
        for window in gone:
            del self.windows[window]
        self.inputs += inputs
        self.frames += len(gone)
        self.before[self.time] = (self.frames, self.inputs)
        fresh = range(self.next_window, self.next_window + opened)
        self.next_window += opened
        self.windows.update(dict.fromkeys(fresh, self.time))
        self.written.setdefault(self.time, []).extend(fresh)
        self.frames += opened
        event = StateReached(
            self.time, inputs, len(gone), opened, 0, opened, len(self.windows), self.time
        )
        orders = self.machine.handle(event, self.now)
        while orders:
            (order,) = orders
            orders = self.carry_out(order)
            self.machine.validate()
        assert self.machine.state is CecState.IDLE

    def carry_out(self, order: CecEffect) -> list[CecEffect]:
        members = self.written[order.time]
        if isinstance(order, LookAtWindows):
            looked, rest = members[: order.most], members[order.most :]
            self.now += len(looked) * self.frame_us
            self.alive = [each for each in looked if self.windows.get(each) == order.time]
            self.written[order.time] = [*self.alive, *rest]
            left = len(self.alive) + len(rest)
            return self.machine.handle(Looked(len(self.alive), left, 0, len(rest)), self.now)
        assert isinstance(order, CheckWindows)
        self.written[order.time] = members[len(self.alive) :]
        self.windows.update(dict.fromkeys(self.alive, self.time))
        self.written.setdefault(self.time, []).extend(self.alive)
        self.frames += len(self.alive)
        return self.machine.handle(Checked(len(self.alive), 0), self.now)

    def oldest(self) -> int:
        return min(self.windows.values(), default=self.time)


def knobs() -> st.SearchStrategy[Continuous]:
    targets = st.sampled_from([None, 1, 50, 5_000])
    return st.one_of(
        st.builds(
            lambda extent, replay, interval: Continuous(extent, replay, None, interval, 100_000),
            targets,
            targets,
            st.sampled_from([1, 5_000, 100_000]),
        ),
        st.builds(
            lambda within: Continuous(recover_within_us=within, interval_us=5_000),
            st.sampled_from([1, 60_000, 10**9]),
        ),
    )


@settings(max_examples=150, deadline=None)
@given(knobs(), st.integers(0, 2**31), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_what_is_kept_is_enough_to_recover(chosen: Continuous, seed: int, closing: float) -> None:
    rng = random.Random(seed)
    fragment = Fragment(chosen, rng, closing)
    for _ in range(40):
        fragment.advance(rng.randrange(200), rng.choice([0, 1, 30]))
        machine = fragment.machine
        # Nothing needed is forgotten, and both sizes are those of the log as it really is.
        assert machine.extent_from <= fragment.oldest()
        assert machine.replay_from == machine.extent_from
        frames, inputs = fragment.before.get(machine.extent_from, (0, 0))
        assert machine.extent == fragment.frames - frames
        assert machine.replay == fragment.inputs - inputs
        assert machine.open_windows == len(fragment.windows)


def steady(chosen: Continuous, frame_us: int = 1, rounds: int = 60) -> Fragment:
    """About 330 open windows, 100 frames a step."""
    fragment = Fragment(chosen, random.Random(1), closing=0.15, frame_us=frame_us)
    for _ in range(rounds):
        fragment.advance(1_000, 50)
    return fragment


def test_a_bound_on_the_extent_holds_at_every_step() -> None:
    fragment = Fragment(Continuous(extent=1_000), random.Random(1), closing=0.15)
    for _ in range(100):
        fragment.advance(1_000, 50)
        assert fragment.machine.extent <= 1_000
    assert fragment.machine.checked > 0


def test_a_bound_holds_where_rounds_are_left_out_now_and_then() -> None:
    """A step a little shorter than the period: after some steps no round is due."""
    knobs = Continuous(extent=1_000, interval_us=25_000, period_us=100_000)
    rng = random.Random(1)
    fragment = Fragment(knobs, rng, closing=0.15)
    for _ in range(300):
        fragment.step_us = rng.choice([95_000, 110_000, 130_000])
        fragment.advance(1_000, 50)
        assert fragment.machine.extent <= 1_000
    assert fragment.machine.checked > 0


def test_a_bound_on_the_replay_holds_and_the_looser_writes_less() -> None:
    tight = steady(Continuous(replay=5_000)).machine
    loose = steady(Continuous(replay=15_000)).machine
    assert tight.replay <= 5_000
    assert loose.replay <= 15_000
    assert tight.checked > loose.checked > 0


def test_no_target_writes_nothing_and_still_notices_what_closed() -> None:
    machine = steady(Continuous()).machine
    assert machine.checked == 0
    assert machine.extent_from > 0


def test_a_round_takes_no_longer_than_the_interval() -> None:
    chosen = Continuous(extent=1, interval_us=10_000, period_us=200_000)
    fragment = Fragment(chosen, random.Random(1), closing=0.0, frame_us=2)
    fragment.advance(1_000, 60_000)
    for _ in range(10):
        begun = fragment.now
        fragment.advance(1_000, 50)
        # The job itself takes 200 ms; one look may be under way when the time is up.
        assert fragment.now - begun - 200_000 <= 2 * 10_000
    assert fragment.machine.checked > 20_000


def test_the_expected_time_is_a_target_too() -> None:
    fragment = Fragment(Continuous(recover_within_us=300_000), random.Random(1), closing=0.05)
    fragment.machine.handle(Measured(load_us=10.0, job_us=3_000.0, tuples=100), 0)
    for _ in range(100):
        fragment.advance(1_000, 50)
        assert fragment.machine.recovery_us <= 300_000
    assert fragment.machine.checked > 0


def test_what_does_not_shorten_a_recovery_is_not_written() -> None:
    """A join's reach stays, so writing windows again would be work for nothing."""
    machine = Checkpointer("test", Continuous(recover_within_us=1), 0)
    for step in range(1, 20):
        reached = StateReached(step * 100, 1_000, 0, 10, 0, 10, 10 * step, 0)
        orders = machine.handle(reached, step * 200_000)
        while orders:
            (order,) = orders
            assert isinstance(order, LookAtWindows)
            orders = machine.handle(Looked(10, 10, 0, 0), step * 200_000)
    assert machine.checked == 0


def test_a_generation_that_cannot_be_written_does_not_hold_up_the_others() -> None:
    """Rows that only accumulate (a join's, below another operator) stay; the replay is bounded."""
    machine = Checkpointer("test", Continuous(replay=500, period_us=100_000), 0)
    left: dict[int, int] = {}
    longest = 0
    for step in range(1, 200):
        time, now = step * 100, step * 100_000
        # The first step leaves a row that is never written again; each opens one window.
        exact = 1 if step == 1 else 0
        left[time] = left.get(time, 0) + 1
        reached = StateReached(time, 10, 0, 1, exact, 1 + exact, sum(left.values()), time)
        orders = machine.handle(reached, now)
        while orders:
            (order,) = orders
            if isinstance(order, LookAtWindows):
                stuck = 1 if order.time == 100 else 0
                alive = left.get(order.time, 0)
                orders = machine.handle(Looked(alive, alive, stuck, 0), now)
            else:
                written = left.pop(order.time)
                left[time] = left.get(time, 0) + written
                orders = machine.handle(Checked(written, 0), now)
            machine.validate()
        longest = max(longest, machine.replay)
    assert longest <= 500


def test_windows_that_could_not_be_written_are_of_their_generation_still() -> None:
    machine = Checkpointer("test", Continuous(extent=1, interval_us=1, period_us=1), 0)
    machine.handle(StateReached(100, 1, 0, 2, 0, 2, 2, 100, ("a", "b")), 0)
    (look,) = machine.handle(StateReached(200, 1, 0, 0, 0, 0, 2, 200), 10)
    assert isinstance(look, LookAtWindows)
    (check,) = machine.handle(Looked(1, 2, 0, 1, ("a",), ("b",)), 11)
    assert check == CheckWindows(100, ("a",))
    assert machine.handle(RoundFailed("the disk hangs"), 12) == []
    (again,) = machine.handle(StateReached(300, 1, 0, 0, 0, 0, 2, 300), 20)
    assert again == LookAtWindows(100, 2, ("a", "b"))
    machine.handle(Looked(2, 2, 0, 0, ("a", "b"), ()), 21)
    machine.handle(Checked(2, 0, ("a", "b")), 22)
    assert machine.extent_from == 300


def test_generations_that_need_the_same_input_do_not_hold_each_other_up() -> None:
    """One alone would not shorten the replay, because of the other; both do."""
    machine = Checkpointer("test", Continuous(replay=5, interval_us=100, period_us=100), 0)
    # What cannot be written again stays in front; behind it two windows without input in between.
    for time, inputs, replayed, exact in ((100, 1, 0, 1), (200, 1, 1, 0), (300, 0, 1, 0)):
        reached = StateReached(time, inputs, 0, replayed, exact, 1, time // 100, time, (time,))
        machine.handle(reached, 0)
    written: list[int] = []
    for time in range(1_000, 3_000, 100):
        orders = machine.handle(StateReached(time, 2, 0, 0, 0, 0, 3, time), time)
        while orders:
            (order,) = orders
            if isinstance(order, CheckWindows):
                written += [one for one in order.looked if isinstance(one, int)]
                answer: Looked | Checked = Checked(len(order.looked), 0, order.looked)
            elif order.members == (100,):
                answer = Looked(0, 0, 1, 0, (), order.members)
            else:
                answer = Looked(len(order.members), len(order.members), 0, 0, order.members)
            orders = machine.handle(answer, time)
    assert {200, 300} <= set(written)
    assert machine.replay <= 12


class Mute:
    """A handle that stands for thousands of windows: to write it out takes longer than a round."""

    def __repr__(self) -> str:
        raise AssertionError("a handle was written out")


def test_a_round_never_writes_out_the_handles_it_passes_on() -> None:
    machine, handles = Checkpointer("test", Continuous(extent=1), 0), (Mute(),)
    for time in (100, 200):
        event = StateReached(time, 10, 0, 5, 0, 5, 10, time, handles)
        orders = machine.handle(event, time * 10_000)
    (look,) = orders
    assert isinstance(look, LookAtWindows)
    assert look.members == handles
    (check,) = machine.handle(Looked(5, 5, 0, 0, handles), 2_000_001)
    assert isinstance(check, CheckWindows)
    assert check.looked == handles
    machine.handle(Checked(5, 0, handles), 2_000_002)
    assert "Mute" not in repr(event)
    with pytest.raises(ProtocolError, match="does not grow"):
        machine.handle(Looked(9, 99, 0, 0, handles), 2_000_003)
