"""How tuples arrive end to end, and what is told of their latencies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

TUPLES_PER_TURN = 30
TURN_SECONDS = 0.01
WARM_SECONDS = 10.0


class Arrivals:
    """Calls ``send(first, made)`` for 30 tuples every 10 ms, by the clock."""

    def __init__(self, send: Callable[[int, int], None]) -> None:
        self._send = send
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        start, turn = time.monotonic(), 0
        while not self._stopping.is_set():
            self._send(turn * TUPLES_PER_TURN, time.time_ns() // 1000)
            turn += 1
            time.sleep(max(0.0, start + turn * TURN_SECONDS - time.monotonic()))

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(5.0)


def percentiles(latencies_us: Sequence[Any]) -> dict[str, float]:
    """What is told of arrays of latencies."""
    values = np.concatenate(latencies_us) / 1000.0
    return {
        "p50_ms": round(float(np.percentile(values, 50)), 1),
        "p99_ms": round(float(np.percentile(values, 99)), 1),
        "tuples": len(values),
    }
