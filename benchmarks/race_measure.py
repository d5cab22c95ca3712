"""Both modes of benchmark race, in turns: undisturbed, disturbed, and compared with an ideal run.

Both deployments are up all the time, so that their processes are of the same age. Readings come to
one of them at a time; the other has nothing to compute meanwhile. Which is first changes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.race_deployment import FLOWING_SECONDS, SERVERS, Running, write_deployment
from benchmarks.race_load import Load, LoadMeter
from benchmarks.race_places import SOURCES, TURNS, Matrix, nearest
from benchmarks.race_reader import Ages
from benchmarks.standby_chain import now_us, traffic_of
from holdfast.cluster.chaos import disturb
from holdfast.cluster.disturbances import Disturbance
from holdfast.cluster.networks import load_network
from holdfast.testing.undisturbed import logged_tuples, undisturbed

MODES = ("race", "active")
SLOWED_TO = 1 / 3
# Young JVMs compile what they run: for a while jobs take twice as long as later.
WARM_SECONDS = 10.0
SETTLE_SECONDS = 1.0
CUT_SECONDS = 3.0
BEFORE_SECONDS = 2.0
MISSING = "latency_west"
# Whoever asks first for early results has engines made for them.
WATCH_SECONDS = 3.0
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Lengths:
    """How long things are looked at; ``calm_s`` in each turn."""

    calm_s: float
    slowed_s: float
    cuts: int
    kills: int
    missing_s: float
    sums: int
    worlds: int


FULL = Lengths(30.0, 40.0, 10, 2, 20.0, 400, 5)
QUICK = Lengths(5.0, 6.0, 3, 0, 10.0, 160, 1)


@dataclass
class Seen:
    """What one mode gave. Ages are in milliseconds.

    in_order  of the calm time, when everything older was there, too.
    nearest   of active, following the nearest.
    loads     of all parts, the calm ones first.
    """

    calm: Ages = field(default_factory=lambda: np.zeros(0))
    in_order: Ages = field(default_factory=lambda: np.zeros(0))
    nearest: Ages = field(default_factory=lambda: np.zeros(0))
    slowed: Ages = field(default_factory=lambda: np.zeros(0))
    missing: Ages = field(default_factory=lambda: np.zeros(0))
    gaps_ms: list[float] = field(default_factory=list)
    kill_gaps_ms: list[float] = field(default_factory=list)
    bytes_per_second: list[float] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    identical: bool = False
    results: int = 0
    all_stable: bool = True


def watch(running: Running, seconds: float, seen: Seen) -> tuple[int, int]:
    """Let readings flow for so many seconds; when it began and ended."""
    with running.flowing():
        time.sleep(SETTLE_SECONDS)
        sent = _bytes_sent(running)
        meter = LoadMeter(running.deployment)
        start = now_us()
        time.sleep(seconds)
        end = now_us()
        seen.loads.append(meter.read())
        seen.bytes_per_second.append((_bytes_sent(running) - sent) * 1e6 / (now_us() - start))
    return start, end


def _bytes_sent(running: Running) -> float:
    return sum(size for _, size in traffic_of(running.deployment).values())


def calm(running: Running, turn: int, seconds: float, seen: Seen) -> None:
    """One turn without disturbance; those who are followed are elsewhere in each."""
    if running.mode == "active":
        running.follow_at(TURNS[turn])
    start, end = watch(running, seconds, seen)
    seen.calm = np.concatenate([seen.calm, running.operator.ages_ms(start, end)])
    ordered = running.operator.ages_in_order_ms(start, end)
    seen.in_order = np.concatenate([seen.in_order, ordered])


def follow_nearest(running: Running, matrix: Matrix, seconds: float, seen: Seen) -> None:
    running.follow_at(nearest(running.places, matrix))
    start, end = watch(running, seconds, seen)
    seen.nearest = running.operator.ages_ms(start, end)


def slowed(running: Running, seconds: float, seen: Seen) -> None:
    """The site whose replica the operator follows has a third of its time."""
    process = running.process_of(running.operator.following)
    longer = seconds + 2 * SETTLE_SECONDS + 2.0
    slow = Disturbance(longer, process, share=SLOWED_TO)
    slowing = threading.Thread(target=disturb, args=(running.deployment, slow), daemon=True)
    slowing.start()
    start, end = watch(running, seconds, seen)
    slowing.join(30.0)
    seen.slowed = running.operator.ages_ms(start, end)


def gap_ms(running: Running, disturbance: Callable[[Running], None]) -> float:
    """The longest time between results from a disturbance on, less the usual one."""
    time.sleep(BEFORE_SECONDS)
    start = now_us()
    usual = running.operator.usual_interval_ms(start)
    disturbance(running)
    running.operator.wait_made(now_us(), FLOWING_SECONDS)
    return max(0.0, running.operator.longest_interval_ms(start, now_us()) - usual)


def cut(running: Running) -> None:
    with running.cut_off(running.operator.following):
        time.sleep(CUT_SECONDS)


def kill(running: Running) -> None:
    """Kill whom the operator follows, with everything beside it, and wait until it is back."""
    running.supervisor.kill(running.process_of(running.operator.following))
    time.sleep(CUT_SECONDS)
    running.wait_stable()


def without_an_input(running: Running, seconds: float, seen: Seen) -> None:
    """One input of the union is cut off; ages of what rests on the other."""
    watcher = running.watch()
    with running.flowing():
        time.sleep(WATCH_SECONDS)
        with running.without(MISSING):
            meter = LoadMeter(running.deployment)
            start = now_us()
            time.sleep(seconds)
            end = now_us()
            seen.loads.append(meter.read())
    seen.missing = watcher.ages_ms(start, end, origins_below=SERVERS // 2)
    # Of an order tentative tuples are a part, which are corrected; here there are none to be.
    seen.all_stable = watcher.ordered or not watcher.tentative


@contextlib.contextmanager
def both_running(
    directory: Path, places: list[str], matrix: Matrix
) -> Iterator[dict[str, Running]]:
    """Both deployments, begun at the same time."""

    def begin(mode: str) -> Running:
        (directory / mode).mkdir()
        deployment = write_deployment(directory / mode, mode, places, matrix)
        return Running(deployment, mode, places)

    with ThreadPoolExecutor() as pool:
        begun = {mode: pool.submit(begin, mode) for mode in MODES}
    try:
        yield {mode: each.result() for mode, each in begun.items()}
    finally:
        for each in begun.values():
            if each.exception() is None:
                each.result().close()


def in_turns(number: int) -> tuple[str, ...]:
    """Both modes, each first as often as the other."""
    return MODES if number % 2 else MODES[::-1]


def measure(
    both: Mapping[str, Running], matrix: Matrix, lengths: Lengths, tell: Tell
) -> dict[str, Seen]:
    found = {mode: Seen() for mode in MODES}
    with contextlib.ExitStack() as stack:
        for running in both.values():
            stack.enter_context(running.flowing())
        time.sleep(WARM_SECONDS)
    for turn in range(len(TURNS)):
        for mode in in_turns(turn):
            calm(both[mode], turn, lengths.calm_s, found[mode])
    follow_nearest(both["active"], matrix, lengths.calm_s, found["active"])
    tell(f"calm: {said(found, lambda seen: seen.calm)}")
    for mode in in_turns(0):
        slowed(both[mode], lengths.slowed_s, found[mode])
    tell(f"slowed: {said(found, lambda seen: seen.slowed)}")
    for mode in in_turns(1):
        with both[mode].flowing():
            meter = LoadMeter(both[mode].deployment)
            for _ in range(lengths.cuts):
                found[mode].gaps_ms.append(gap_ms(both[mode], cut))
            found[mode].loads.append(meter.read())
        tell(f"{mode}, cut off: gaps of {[round(gap) for gap in found[mode].gaps_ms]} ms")
    for mode in in_turns(0):
        without_an_input(both[mode], lengths.missing_s, found[mode])
    tell(f"an input missing: {said(found, lambda seen: seen.missing)}")
    # A process that starts again takes both processors: kills have no bar, no load, and come last.
    for mode in in_turns(1) if lengths.kills else ():
        with both[mode].flowing():
            for _ in range(lengths.kills):
                found[mode].kill_gaps_ms.append(gap_ms(both[mode], kill))
        tell(f"{mode}, killed: gaps of {[round(gap) for gap in found[mode].kill_gaps_ms]} ms")
    return found


def said(found: Mapping[str, Seen], ages: Callable[[Seen], Ages]) -> str:
    return "; ".join(
        f"{mode} {np.percentile(ages(seen), 50):.0f} and {np.percentile(ages(seen), 99):.0f} ms, "
        f"{seen.loads[-1].busy:.0%} busy"
        for mode, seen in found.items()
    )


def run_modes(
    directory: Path, places: list[str], matrix: Matrix, lengths: Lengths, tell: Tell
) -> dict[str, Seen]:
    with both_running(directory, places, matrix) as both:
        tell("both are up")
        found = measure(both, matrix, lengths, tell)
        complete = {mode: running.drained() for mode, running in both.items()}
    for mode, running in both.items():
        compare(running, complete[mode], found[mode])
        tell(f"{mode}: {found[mode].results:,} results, identical {found[mode].identical}")
    return found


def compare(running: Running, complete: bool, seen: Seen) -> None:
    """With what an undisturbed run gives over what was logged."""
    deployment = running.deployment
    network = load_network(deployment.network, "local[2]", {})
    logs = deployment.data / "processes"
    sources = {name: logged_tuples(logs / f"entry-{name}" / "streams" / name) for name in SOURCES}
    expected = undisturbed(network, sources)
    seen.results = running.operator.count
    seen.identical = complete and running.operator.is_all_of(expected["alerts"])
    assert running.watcher is not None, "it was asked for"
    seen.identical &= running.watcher.is_all_of(expected["slow"])
