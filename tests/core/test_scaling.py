"""The number of shards follows the load, within its bounds, slowly, and not back and forth.

A small world for it: work comes, shards divide it, and another number takes a while to be there.
What it does is watched, and planted mistakes must be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import scaling
from holdfast.core.scaling import Scaling, ScalingSettings
from holdfast.core.settings import SECOND_US

LOOK_US = 2 * SECOND_US
TAKING_OVER_US = 20 * SECOND_US


class Seen(Exception):
    """It does what it should not."""


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise Seen(what)


# What there is to do at a time, in shards that are busy all of the time.
Work = Callable[[int], float]


@dataclass
class World:
    """A fragment whose shards follow what there is to do."""

    settings: ScalingSettings
    shards: int
    # What each shard does whatever its part is: more of them do not help there.
    fixed: float = 0.0
    changes: list[tuple[int, int, int]] = field(default_factory=list)

    def run(self, work: Work, until_us: int) -> None:
        machine = Scaling(self.settings)
        ready_at, now = 0, 0
        high_since: int | None = None
        while now < until_us:
            load = self.fixed + work(now) / self.shards
            known = load if now >= ready_at else None
            wanted = machine.look(now, self.shards, known)
            busy = known is not None and load > 0.75 and self.shards < self.settings.most
            high_since = (now if high_since is None else high_since) if busy else None
            if wanted is not None:
                self._watch(now, load, wanted)
                self.changes.append((now, self.shards, wanted))
                self.shards, ready_at, high_since = wanted, now + TAKING_OVER_US, None
            helped = high_since is None or now - high_since <= self.settings.grow_after_us
            expect(helped or machine.more_do_not_help, "too much to do, and no help")
            now += LOOK_US

    def _watch(self, now: int, load: float, wanted: int) -> None:
        least, most = self.settings.least, self.settings.most
        expect(least <= wanted <= most, "beyond its bounds")
        expect(wanted != self.shards and wanted <= 2 * self.shards, "no change, or a leap")
        more = wanted > self.shards
        after = self.settings.grow_after_us if more else self.settings.shrink_after_us
        since = self.changes[-1][0] + TAKING_OVER_US if self.changes else 0
        expect(now - since >= after, "in haste")
        expect(load > 0.75 or not more, "more, though there was room")
        expect(more or load * self.shards / wanted <= 0.5 + 1e-6, "too few")


def settled(most: int) -> int:
    """How many changes there may be until the number fits."""
    return ceil(log2(most)) + 2


@given(
    work=st.floats(0.0, 20.0),
    begins=st.integers(1, 12),
    sway=st.floats(0.0, 0.15),
    period=st.integers(1, 60),
)
def test_what_there_is_to_do_all_the_time_gets_a_number_that_stays(
    work: float, begins: int, sway: float, period: int
) -> None:
    def swaying(now: int) -> float:
        return work * (1 + (sway if now // (period * SECOND_US) % 2 else -sway))

    world = World(ScalingSettings(1, 12), begins)
    world.run(swaying, 1800 * SECOND_US)
    assert len(world.changes) <= settled(12)
    assert all(at < 900 * SECOND_US for at, _, _ in world.changes)
    # It is not always too much for them, and fewer would not always do.
    assert world.shards == 12 or work * (1 - sway) / world.shards <= scaling.HIGH + 1e-9
    assert world.shards <= max(1, ceil(work * (1 + sway) / scaling.AIM + 1e-6))


@given(st.lists(st.floats(0.0, 12.0), min_size=1, max_size=40), st.integers(5, 120))
def test_whatever_comes_it_keeps_its_bounds_and_its_patience(
    works: list[float], seconds: int
) -> None:
    def steps(now: int) -> float:
        return works[now // (seconds * SECOND_US) % len(works)]

    World(ScalingSettings(2, 9), 3).run(steps, 1800 * SECOND_US)


def test_a_moment_of_much_work_changes_nothing() -> None:
    world = World(ScalingSettings(1, 8), 4)
    # Ten seconds of every minute.
    world.run(lambda now: 6.0 if now // SECOND_US % 60 < 10 else 1.9, 3600 * SECOND_US)
    assert world.changes == []


def test_more_shards_that_do_not_help_are_not_followed_by_still_more() -> None:
    world = World(ScalingSettings(1, 16), 2, fixed=0.9)
    world.run(lambda now: 0.02, 1800 * SECOND_US)
    assert [after for _, _, after in world.changes] == [4]


def test_shards_that_are_lost_are_no_reason() -> None:
    machine = Scaling(ScalingSettings(1, 8))
    for now in range(0, 600 * SECOND_US, LOOK_US):
        # Every twenty seconds one is away for a moment.
        load = None if now // LOOK_US % 10 == 0 else 0.95
        assert machine.look(now, 2, load) is None


def test_bounds_that_have_changed_are_obeyed() -> None:
    assert few(Scaling(ScalingSettings(3, 8)), 1, 0.6) == 2
    assert few(Scaling(ScalingSettings(1, 2)), 6, 0.9) == 2


def few(machine: Scaling, shards: int, load: float) -> int | None:
    """What comes of a load that lasts."""
    found = (machine.look(now, shards, load) for now in range(0, 400 * SECOND_US, LOOK_US))
    return next((one for one in found if one is not None), None)


def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "HIGH", scaling.AIM)


def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Scaling.__init__

    def broken(self: Scaling, settings: ScalingSettings) -> None:
        told(self, ScalingSettings(settings.least, settings.most, 0, 0))

    monkeypatch.setattr(Scaling, "__init__", broken)


def never_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scaling, "_grow", lambda *given: None)


def as_few_as_at_the_best_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    told: Any = Scaling._shrink

    def broken(self: Scaling, now: int, shards: int, fitting: int) -> int | None:
        self._best = min(fitting, getattr(self, "_best", fitting))  # type: ignore[attr-defined]
        found = told(self, now, shards, fitting)
        return None if found is None else int(self._best)  # type: ignore[attr-defined]

    monkeypatch.setattr(Scaling, "_shrink", broken)


def no_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Scaling, "_fitting", lambda self, shards, load: ceil(shards * load / scaling.AIM)
    )


def watched() -> None:
    """Loads with which mistakes show."""
    for most in (3.5, 2.9):  # one is too much for four, the other is not
        World(ScalingSettings(2, 8), 4).run(
            lambda now, most=most: most if now // (40 * SECOND_US) % 2 else 0.8 * most,  # type: ignore[misc]
            1800 * SECOND_US,
        )
    # Now and then, but never for five minutes not, there is much to do.
    world = World(ScalingSettings(2, 8), 8)
    world.run(lambda now: 3.9 if now // SECOND_US % 290 < 20 else 1.0, 1800 * SECOND_US)
    expect(world.changes == [], "back and forth")
    world = World(ScalingSettings(2, 8), 8)
    world.run(lambda now: 2.4 if now // (40 * SECOND_US) % 2 else 1.0, 1800 * SECOND_US)
    expect([after for _, _, after in world.changes] == [5], "back and forth")
    # There is less and less to do.
    World(ScalingSettings(2, 8), 8).run(lambda now: 3.0 - now / 900e6, 1800 * SECOND_US)
    World(ScalingSettings(2, 8), 8).run(lambda now: 30.0, 600 * SECOND_US)


def test_nothing_is_seen_without_a_mistake() -> None:
    watched()


@pytest.mark.parametrize(
    "mistake", [no_room, no_patience, never_more, as_few_as_at_the_best_moment, no_bounds]
)
def test_mistakes_are_seen(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(Seen):
        watched()
