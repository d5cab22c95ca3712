"""Delay under transient failures: of each protection (Fig. 4), of a shared secondary (Fig. 5).

A transient failure takes the CPU away from one process: it stands still (SIGSTOP) for bursts at
random moments (Poisson). The paper runs a program that takes the CPU of a machine. With every
machine of the experiment on two cores such a program would slow down all of them; stopping hits
just one. It takes all of the CPU: a process to which a tenth is left still answers heartbeats
here, and is then rightly not replaced.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.standby_chain import Chain, now_us
from holdfast.runtime.disturbances import Disturbance, carry_out
from holdfast.runtime.supervisor import send_signal

SHARE_LEFT = 0.0
PERIOD_SECONDS = 5.0


class Failures:
    """Transient failures on some machines, each for itself, for a fraction of the time."""

    def __init__(self, chain: Chain, machines: Sequence[str], fraction: float, seconds: float):
        self._threads = [
            threading.Thread(
                target=carry_out,
                args=(
                    Disturbance(
                        seconds,
                        machine,
                        share=SHARE_LEFT,
                        fraction=fraction,
                        period_s=PERIOD_SECONDS,
                        arrivals="poisson",
                        seed=seed,
                    ),
                    partial(send_signal, chain.deployment, machine),
                ),
                daemon=True,
            )
            for seed, machine in enumerate(machines)
        ]
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()


def under_failures(
    chain: Chain, machines: Sequence[str], fractions: Sequence[float], seconds: float
) -> dict[str, dict[str, dict[str, float]]]:
    """Branch -> fraction of the time -> the delays of the elements made in that time."""
    found: dict[str, dict[str, dict[str, float]]] = {name: {} for name in chain.branches}
    for fraction in fractions:
        start = now_us()
        if fraction:
            Failures(chain, machines, fraction, seconds).wait()
        else:
            time.sleep(seconds)
        end = now_us()
        chain.wait_flowing()
        for name, branch in chain.branches.items():
            found[name][f"{fraction:.2f}"] = describe(branch.delays_ms(start, end))
    return found


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
