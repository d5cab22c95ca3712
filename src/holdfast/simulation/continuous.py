"""Continuous checkpoints of simulated replicas: the states of single windows, in their logs.

A window's state is written when it opens and again when a round says so; in between it is
computed from the input since then. A join is computed from its input alone, as far back as it
reaches; its rows count as written once and for all, and hold their generation until they are
too old to be joined. Recovery takes the newest state of each window that the log has, up to the
record's boundary, and the input since the oldest of them; a window that is open then and has no
state in the log is a broken promise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from holdfast.core.continuous import (
    Checked,
    CheckWindows,
    Generation,
    LookAtWindows,
    Looked,
    Mark,
    Restored,
    StateReached,
)
from holdfast.core.events import WindowBlock
from holdfast.core.frame import Kind, StreamFrame
from holdfast.core.records import RecoveryRecord
from holdfast.simulation.checkers import Violation
from holdfast.simulation.executor import Join, Plan, Tagged, Window, mix

Place: TypeAlias = tuple[str, int, int]  # output, start of the window, key
# Stands for rows of a join; the second number is when they are too old.
JOIN = "join"
Kept: TypeAlias = tuple[Place, int, int]  # accumulated, oldest stime


def open_windows(plan: Plan, state: object) -> dict[Place, tuple[int, int]]:
    """Every window that a state has open."""
    states: tuple[object, ...] = state or (None,) * len(plan.outputs)  # type: ignore[assignment]
    found: dict[Place, tuple[int, int]] = {}
    for (stream, operator), own in zip(plan.outputs, states, strict=True):
        if isinstance(operator, Window):
            windows: dict[tuple[int, int], tuple[int, int]] = dict(own or ())  # type: ignore[call-overload]
            found |= {(stream, *place): kept for place, kept in windows.items()}
    return found


def news(
    plan: Plan, before: object, after: object, stop: int, inputs: int, results: int
) -> tuple[tuple[WindowBlock, ...], StateReached]:
    """What the log must have of a stable state."""
    known, windows = open_windows(plan, before), open_windows(plan, after)
    opened = tuple((place, *kept) for place, kept in windows.items() if place not in known)
    blocks: tuple[WindowBlock, ...] = ()
    if opened:
        blocks = (WindowBlock(Kind.WINDOW_OPEN, len(opened), stop, opened),)
    members = tuple(place for place, _, _ in opened)
    count = len(opened)
    accumulated = tuple(
        (JOIN, stop + one.within_us, 0)
        for _, one in plan.outputs
        if isinstance(one, Join) and inputs
    )
    if accumulated:
        kept = tuple((place, 0, 0) for place in accumulated)
        blocks += (WindowBlock(Kind.WINDOW_CHECK, len(kept), stop, kept),)
    return blocks, StateReached(
        stop,
        inputs,
        results,
        count,
        len(accumulated),
        count + len(accumulated),
        len(windows),
        reach(plan, stop),
        (*members, *accumulated),
    )


def reach(plan: Plan, stop: int) -> int:
    """The oldest input that is needed whatever the windows are."""
    joins = [one.within_us for _, one in plan.outputs if isinstance(one, Join)]
    return max(0, stop - max(joins)) if joins else stop


def look(plan: Plan, state: object, now: int, order: LookAtWindows) -> Looked:
    windows = open_windows(plan, state)
    members: tuple[Place, ...] = order.members  # type: ignore[assignment]
    first, rest = members[: order.most], members[order.most :]
    alive = tuple(place for place in first if place in windows)
    stays = tuple(place for place in first if place[0] == JOIN and place[1] > now)
    left = (*alive, *rest, *stays)
    exact = sum(place[0] == JOIN for place in left)
    return Looked(len(alive), len(left) - exact, exact, len(rest), alive, (*rest, *stays))


def check(
    plan: Plan, state: object, time: int, order: CheckWindows
) -> tuple[Checked, tuple[WindowBlock, ...]]:
    windows = open_windows(plan, state)
    looked: tuple[Place, ...] = order.looked  # type: ignore[assignment]
    written = tuple((place, *windows[place]) for place in looked)
    block = WindowBlock(Kind.WINDOW_CHECK, len(written), time, written)
    return Checked(len(looked), 0, looked), (block,) if written else ()


def recover(
    plan: Plan, record: RecoveryRecord, log: Iterable[StreamFrame], rows: list[Tagged]
) -> tuple[object, Restored]:
    """The state at the record's boundary, from the log and the input since its marker."""
    boundary = record.boundary
    newest: dict[Place, tuple[int, int, int]] = {}  # time, accumulated, oldest
    for frame in log:
        time = frame.header.stime_min
        if record.extent <= time <= boundary:
            kept: tuple[Kept, ...] = frame.block  # type: ignore[assignment]
            for place, accumulated, oldest in kept:
                if time >= newest.get(place, (-1, 0, 0))[0]:
                    newest[place] = (time, accumulated, oldest)
    states: list[object] = []
    for stream, operator in plan.outputs:
        mine = [row for row in sorted(rows) if row[1] in operator.inputs]
        if isinstance(operator, Window):
            states.append(_window_states(stream, operator, newest, mine, boundary))
        elif isinstance(operator, Join):
            states.append(tuple(row for row in mine if row[0] > boundary - operator.within_us))
        else:
            states.append(None)
    state = tuple(states)
    return state, _restored(plan, state, newest, boundary)


def _window_states(
    stream: str,
    operator: Window,
    newest: dict[Place, tuple[int, int, int]],
    rows: list[Tagged],
    boundary: int,
) -> object:
    found = {
        place[1:]: kept
        for place, kept in newest.items()
        if place[0] == stream and place[1] + operator.size_us > boundary
    }
    for stime, _, _, key, value in rows:
        place = (stime - stime % operator.size_us, key)
        if place[0] + operator.size_us <= boundary:
            continue
        if place not in found:
            raise Violation(
                "continuous", f"{stream}: the log has no state of the window {place}, open then"
            )
        time, accumulated, oldest = found[place]
        if stime >= time:
            found[place] = (time, mix(accumulated, value), oldest)
    return tuple((place, kept[1:]) for place, kept in found.items())


def _restored(
    plan: Plan, state: object, newest: dict[Place, tuple[int, int, int]], boundary: int
) -> Restored:
    by_time: dict[int, list[Place]] = {}
    windows = open_windows(plan, state)
    for place in windows:
        by_time.setdefault(newest[place][0], []).append(place)
    generations = tuple(
        Generation(time, len(places), 0, tuple(places)) for time, places in sorted(by_time.items())
    )
    start = min(by_time, default=boundary)
    reached = StateReached(boundary, 0, 0, 0, 0, 0, len(windows), reach(plan, boundary))
    return Restored(generations, (Mark(start, 0, 0),), reached)
