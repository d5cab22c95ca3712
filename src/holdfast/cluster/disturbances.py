"""Transient unavailability: a process that gets too little CPU, or a machine that is loaded.

A disturbance lasts a bounded time and comes in bursts:

    regular   a burst of ``fraction * period`` at the start of every period
    poisson   bursts of the same length, the pauses between them exponentially distributed with
              the mean ``(1 - fraction) * period``: the same share of time, at random moments

During a burst a *process* is stopped and continued twenty times a second, so that ``share`` of the
time is left to it (0: it stands still); nobody else notices. Without a process the *machine* is
loaded: burners, real processes that do nothing but count, compete with everybody.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from holdfast.cluster.children import Children
from holdfast.errors import InputError

_CYCLE_SECONDS = 0.05
_BURNER = """
import os, sys, time
end, parent = time.monotonic() + float(sys.argv[1]), os.getppid()
while time.monotonic() < end and os.getppid() == parent:
    for _ in range(100_000):
        pass
"""

Signal = Callable[[signal.Signals], object]


@dataclass(frozen=True)
class Disturbance:
    """What is disturbed, for how long, and how."""

    seconds: float
    process: str | None = None
    share: float = 0.0
    fraction: float = 1.0
    period_s: float = 1.0
    arrivals: str = "regular"
    burners: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, ok, expected in (
            ("seconds", 0 < self.seconds <= 86_400, "more than 0 and at most a day"),
            ("share", 0 <= self.share < 1, "from 0 to less than 1"),
            ("fraction", 0 < self.fraction <= 1, "more than 0 and at most 1"),
            ("period_s", self.period_s > 0, "more than 0"),
            ("arrivals", self.arrivals in ("regular", "poisson"), "regular or poisson"),
            ("burners", self.burners is None or 0 < self.burners <= 1_000, "from 1 to 1000"),
        ):
            if not ok:
                raise InputError(f"{name} is {expected}; got {getattr(self, name)!r}")

    def bursts(self) -> Iterator[tuple[float, float]]:
        """When each burst starts and ends, in seconds from the start."""
        if self.fraction == 1:
            yield 0.0, self.seconds
            return
        choice = random.Random(self.seed)
        length = self.fraction * self.period_s
        pause = self.period_s - length
        start = 0.0 if self.arrivals == "regular" else choice.expovariate(1 / pause)
        while start < self.seconds:
            yield start, min(start + length, self.seconds)
            wait = pause if self.arrivals == "regular" else choice.expovariate(1 / pause)
            start += length + wait


def carry_out(
    disturbance: Disturbance, to_process: Signal, stop: threading.Event | None = None
) -> float:
    """Disturb until it is over or ``stop`` is set; for how many seconds there was a burst.

    ``to_process`` sends a signal to the process and its JVM, if it runs.
    """
    stopping = stop or threading.Event()
    if disturbance.process is not None:
        return _in_bursts(
            disturbance,
            lambda end: _slow(disturbance.share, end, to_process, stopping),
            stopping,
        )
    burners = _start_burners(disturbance)

    def burn(end: float) -> None:
        try:
            for each in burners:
                each.send_signal(signal.SIGCONT)
            stopping.wait(max(0.0, end - time.monotonic()))
        finally:
            for each in burners:
                each.send_signal(signal.SIGSTOP)

    try:
        return _in_bursts(disturbance, burn, stopping)
    finally:
        for each in burners:
            each.kill()
            each.wait()


def _in_bursts(
    disturbance: Disturbance, burst: Callable[[float], None], stopping: threading.Event
) -> float:
    began, total = time.monotonic(), 0.0
    for start, end in disturbance.bursts():
        if stopping.wait(max(0.0, began + start - time.monotonic())):
            return total
        started = time.monotonic()
        burst(began + end)
        total += time.monotonic() - started
    stopping.wait(max(0.0, began + disturbance.seconds - time.monotonic()))
    return total


def _slow(share: float, end: float, to_process: Signal, stopping: threading.Event) -> None:
    """Leave the process its share of every cycle."""
    try:
        while time.monotonic() < end and not stopping.is_set():
            to_process(signal.SIGSTOP)
            left = end - time.monotonic()
            stopping.wait(max(0.0, min(left, (1 - share) * _CYCLE_SECONDS)))
            if share:
                to_process(signal.SIGCONT)
                stopping.wait(share * _CYCLE_SECONDS)
    finally:
        to_process(signal.SIGCONT)


def _start_burners(disturbance: Disturbance) -> list[subprocess.Popen[bytes]]:
    """Stopped, and bounded in time whatever becomes of this process."""
    command = [sys.executable, "-S", "-c", _BURNER, str(disturbance.seconds + 5.0)]
    burners = []
    for _ in range(disturbance.burners or os.cpu_count() or 1):
        burner = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        burner.send_signal(signal.SIGSTOP)
        burners.append(burner)
    return burners


def start_disturbance(options: dict[str, Any], children: Children) -> threading.Thread:
    """Disturb one of ``children``, or this machine, in a thread."""
    names = {each.name for each in fields(Disturbance)}
    disturbance = Disturbance(**{key: each for key, each in options.items() if key in names})
    process = disturbance.process

    def to_process(number: signal.Signals) -> None:
        if process is not None:
            children.signal(process, number)

    thread = threading.Thread(
        target=carry_out, args=(disturbance, to_process), name="disturbance", daemon=True
    )
    thread.start()
    return thread
