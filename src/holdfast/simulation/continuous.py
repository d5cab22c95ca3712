"""Continuous checkpoints of simulated replicas: the states of single windows, in their logs.

A window's state is written when it opens and again when a round says so; in between it is
computed from the input since then. A join is computed from its input alone, as far back as it
reaches; its rows count as written once and for all, and hold their generation until they are
too old to be joined. The first rows of distinct keys are written once, too: they hold their
generation until their window closes, and need no input.

Recovery takes the newest state of each window that the log has, up to the record's boundary, and
the input since the oldest of them; a window that is open then and has no state in the log is a
broken promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from holdfast.simulation.executor import Computation, Distinct, Join, Row, Tagged, Window, mix

Place: TypeAlias = tuple[str, int, int]  # output, start of the window, key
# Stands for rows of a join; the second number is when they are too old.
JOIN = "join"
Kept: TypeAlias = tuple[Place, int, int]  # accumulated, oldest stime
Newest: TypeAlias = dict[Place, tuple[int, int, int]]  # time, accumulated, oldest


def open_windows(
    plan: Computation, state: object, kind: type[Window | Distinct] = Window
) -> dict[Place, tuple[int, int]]:
    """Every window of some operators that a state has open."""
    states: tuple[object, ...] = state or (None,) * len(plan.outputs)  # type: ignore[assignment]
    found: dict[Place, tuple[int, int]] = {}
    for (stream, operator), own in zip(plan.outputs, states, strict=True):
        if isinstance(operator, kind):
            windows: dict[tuple[int, int], tuple[int, int]] = dict(own or ())  # type: ignore[call-overload]
            found |= {(stream, *place): kept for place, kept in windows.items()}
    return found


def news(
    plan: Computation, before: object, after: object, stop: int, inputs: int, results: int
) -> tuple[tuple[WindowBlock, ...], StateReached]:
    """What the log must have of a stable state."""
    windows = open_windows(plan, after)
    opened = _fresh(open_windows(plan, before), windows)
    firsts = open_windows(plan, after, Distinct)
    exact = _fresh(open_windows(plan, before, Distinct), firsts) + tuple(
        ((JOIN, stop + one.within_us, 0), 0, 0)
        for _, one in plan.outputs
        if isinstance(one, Join) and inputs
    )
    blocks = tuple(
        WindowBlock(kind, len(kept), stop, kept)
        for kind, kept in ((Kind.WINDOW_OPEN, opened), (Kind.WINDOW_CHECK, exact))
        if kept
    )
    return blocks, StateReached(
        stop,
        inputs,
        results,
        len(opened),
        len(exact),
        len(opened) + len(exact),
        len(windows) + len(firsts),
        reach(plan, stop),
        tuple(place for place, _, _ in (*opened, *exact)),
    )


def _fresh(
    known: dict[Place, tuple[int, int]], windows: dict[Place, tuple[int, int]]
) -> tuple[Kept, ...]:
    return tuple((place, *kept) for place, kept in windows.items() if place not in known)


def reach(plan: Computation, stop: int) -> int:
    """The oldest input that is needed whatever the windows are."""
    joins = [one.within_us for _, one in plan.outputs if isinstance(one, Join)]
    return max(0, stop - max(joins)) if joins else stop


def look(plan: Computation, state: object, now: int, order: LookAtWindows) -> Looked:
    windows = open_windows(plan, state)
    members: tuple[Place, ...] = order.members  # type: ignore[assignment]
    first, rest = members[: order.most], members[order.most :]
    firsts = open_windows(plan, state, Distinct)
    distinct = {stream for stream, one in plan.outputs if isinstance(one, Distinct)}
    alive = tuple(place for place in first if place in windows)
    stays = tuple(
        place for place in first if place in firsts or (place[0] == JOIN and place[1] > now)
    )
    left = (*alive, *rest, *stays)
    exact = sum(place[0] == JOIN or place[0] in distinct for place in left)
    return Looked(len(alive), len(left) - exact, exact, len(rest), alive, (*rest, *stays))


def check(
    plan: Computation, state: object, time: int, order: CheckWindows
) -> tuple[Checked, tuple[WindowBlock, ...]]:
    windows = open_windows(plan, state)
    looked: tuple[Place, ...] = order.looked  # type: ignore[assignment]
    written = tuple((place, *windows[place]) for place in looked)
    block = WindowBlock(Kind.WINDOW_CHECK, len(written), time, written)
    return Checked(len(looked), 0, looked), (block,) if written else ()


def recover(
    plan: Computation, record: RecoveryRecord, log: Iterable[StreamFrame], rows: list[Tagged]
) -> tuple[object, Restored]:
    """The state at the record's boundary, from the log and the input since its marker."""
    boundary = record.boundary
    newest = _newest(record, log)
    states: list[object] = []
    for stream, operator in plan.outputs:
        mine = [row for row in sorted(rows) if row[1] in operator.inputs]
        if isinstance(operator, Window):
            states.append(_window_states(stream, operator, newest, mine, boundary))
        elif isinstance(operator, Distinct):
            found = _open_then(stream, operator.size_us, newest, boundary)
            states.append(tuple((place, kept[1:]) for place, kept in found.items()))
        elif isinstance(operator, Join):
            states.append(tuple(row for row in mine if row[0] > boundary - operator.within_us))
        else:
            states.append(None)
    state = tuple(states)
    return state, _restored(plan, state, newest, boundary)


def _newest(record: RecoveryRecord, log: Iterable[StreamFrame]) -> Newest:
    """The newest state that a log has of each window, as far as the record goes."""
    newest: Newest = {}
    for frame in log:
        time = frame.header.stime_min
        if record.extent <= time <= record.boundary:
            kept: tuple[Kept, ...] = frame.block  # type: ignore[assignment]
            for place, accumulated, oldest in kept:
                if time >= newest.get(place, (-1, 0, 0))[0]:
                    newest[place] = (time, accumulated, oldest)
    return newest


def missing(
    plan: Computation,
    record: RecoveryRecord,
    log: Iterable[StreamFrame],
    streams: Mapping[str, Sequence[Row]],
) -> set[Place]:
    """The windows that had tuples of these streams at the record's boundary, and have no state."""
    newest, boundary = _newest(record, log), record.boundary
    expected: set[Place] = set()
    for output, operator in plan.outputs:
        if isinstance(operator, Window | Distinct):
            size_us = operator.size_us
            for stream in operator.inputs:
                for stime, key, *_ in reversed(streams.get(stream, ())):
                    if stime < boundary - 2 * size_us:
                        break  # far enough, however late some tuples were
                    start = stime - stime % size_us
                    if stime < boundary < start + size_us and plan.takes(key):
                        expected.add((output, start, key))
    return expected - newest.keys()


def _open_then(
    stream: str, size_us: int, newest: Newest, boundary: int
) -> dict[tuple[int, int], tuple[int, int, int]]:
    return {
        place[1:]: kept
        for place, kept in newest.items()
        if place[0] == stream and place[1] + size_us > boundary
    }


def _window_states(
    stream: str, operator: Window, newest: Newest, rows: list[Tagged], boundary: int
) -> object:
    found = _open_then(stream, operator.size_us, newest, boundary)
    for stime, _, _, key, value, _ in rows:
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


def _restored(plan: Computation, state: object, newest: Newest, boundary: int) -> Restored:
    windows, firsts = open_windows(plan, state), open_windows(plan, state, Distinct)
    by_time: dict[int, list[Place]] = {}
    for place in (*windows, *firsts):
        by_time.setdefault(newest[place][0], []).append(place)
    generations = []
    for time, places in sorted(by_time.items()):
        replayed = sum(place in windows for place in places)
        generations.append(Generation(time, replayed, len(places) - replayed, tuple(places)))
    start = min(by_time, default=boundary)
    count = len(windows) + len(firsts)
    reached = StateReached(boundary, 0, 0, 0, 0, 0, count, reach(plan, boundary))
    return Restored(tuple(generations), (Mark(start, 0, 0),), reached)
