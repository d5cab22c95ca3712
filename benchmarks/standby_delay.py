"""Delay under transient failures: of each protection (Fig. 4), of a shared secondary (Fig. 5).

A transient failure makes one copy or machine unavailable for bursts at random moments (Poisson).
The paper runs a program that takes the CPU of a machine. With every machine of the experiment on
two cores such a program would slow down all of them. So here a machine stands still (SIGSTOP), or
a copy is cut off from everyone. It is the whole of the machine that is away: one to which a tenth
of the CPU is left still answers heartbeats here, and is then rightly not replaced.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.standby_chain import Chain, now_us
from holdfast.cluster.disturbances import Disturbance, carry_out
from holdfast.cluster.supervisor import send_signal

PERIOD_SECONDS = 2.5


class Stopped(threading.Thread):
    """A machine that stands still for a fraction of the time."""

    def __init__(self, chain: Chain, machine: str, bursts: Disturbance) -> None:
        super().__init__(daemon=True)
        self._bursts = bursts
        self._signal = partial(send_signal, chain.deployment, machine)

    def run(self) -> None:
        carry_out(self._bursts, self._signal)


class CutOff(threading.Thread):
    """A copy that is cut off for a fraction of the time."""

    def __init__(self, chain: Chain, node: str, bursts: Disturbance) -> None:
        super().__init__(daemon=True)
        self._chain, self._node, self._bursts = chain, node, bursts

    def run(self) -> None:
        began = time.monotonic()
        for start, end in self._bursts.bursts():
            time.sleep(max(0.0, began + start - time.monotonic()))
            with self._chain.cut_off(self._node):
                time.sleep(max(0.0, began + end - time.monotonic()))
        time.sleep(max(0.0, began + self._bursts.seconds - time.monotonic()))


def under_failures(
    chain: Chain,
    failure: type[Stopped] | type[CutOff],
    where: Sequence[str],
    fractions: Sequence[float],
    seconds: float,
) -> dict[str, dict[str, dict[str, float]]]:
    """Branch -> fraction of the time -> the delays of the elements made in that time."""
    found: dict[str, dict[str, dict[str, float]]] = {name: {} for name in chain.branches}
    for fraction in fractions:
        start = now_us()
        if fraction:
            failures = [failure(chain, each, _bursts(seconds, fraction, each)) for each in where]
            for each in failures:
                each.start()
            for each in failures:
                each.join()
        else:
            time.sleep(seconds)
        end = now_us()
        chain.wait_flowing()
        for name, branch in chain.branches.items():
            found[name][f"{fraction:.2f}"] = describe(branch.delays_ms(start, end))
    return found


def _bursts(seconds: float, fraction: float, where: str) -> Disturbance:
    """Each place has its own, the same in every run."""
    return Disturbance(
        seconds,
        where,
        share=0.0,
        fraction=fraction,
        period_s=PERIOD_SECONDS,
        arrivals="poisson",
        seed=zlib.crc32(where.encode()),
    )


def describe(delays_ms: Any) -> dict[str, float]:
    return {
        "mean_ms": round(float(np.mean(delays_ms)), 1),
        "p50_ms": round(float(np.percentile(delays_ms, 50)), 1),
        "p99_ms": round(float(np.percentile(delays_ms, 99)), 1),
    }


def growth(points: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """How much longer the mean delay is at each fraction than at the first."""
    means = {fraction: one["mean_ms"] for fraction, one in points.items()}
    base = next(iter(means.values()))
    return {fraction: round(mean / base, 2) for fraction, mean in means.items()}
