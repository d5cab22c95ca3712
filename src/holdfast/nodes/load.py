"""How busy the processors are that this process may run on."""

from __future__ import annotations

import os

import psutil


class CpuLoad:
    """The share of CPU time that was used between two looks."""

    def __init__(self, nice: bool = True) -> None:
        """``nice``: whether what gives way to others counts as use."""
        self._nice = nice
        self._busy, self._total = self._read()

    def look(self) -> float:
        """The load since the last look; 0 if no time has passed that the system counts."""
        before_busy, before_total = self._busy, self._total
        self._busy, self._total = self._read()
        passed = self._total - before_total
        return (self._busy - before_busy) / passed if passed > 0 else 0.0

    def _read(self) -> tuple[float, float]:
        busy = total = 0.0
        every = psutil.cpu_times(percpu=True)
        # There may be fewer than the highest number says: some can be switched off.
        for number in os.sched_getaffinity(0):
            if number < len(every):
                times = every[number]
                used = times.user + times.system + times.irq + times.softirq + times.steal
                busy += used + (times.nice if self._nice else 0.0)
                total += used + times.nice + times.idle + times.iowait
        return busy, total
