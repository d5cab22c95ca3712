"""CPU load on one core: a machine that is too busy for what else runs on it (Fig. 12, 13).

Each machine of this experiment is one core. The process under test is bound to it, with burners
beside it: processes that do nothing but count, for a share of the time. They go before it: it is
*nice*, because Linux gives a process that wakes up the CPU soon, however many others of its rank
count. Everything else runs on the other cores and does not notice.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable

import psutil

_BURNER = """
import os, sys, time
core, share, parent = int(sys.argv[1]), float(sys.argv[2]), os.getppid()
os.sched_setaffinity(0, {core})
os.kill(os.getpid(), 19)
while os.getppid() == parent:
    end = time.monotonic() + 0.02 * share
    while time.monotonic() < end:
        pass
    if share < 1:
        time.sleep(0.02 * (1 - share))
"""


def bind(pids: Iterable[int], cores: set[int]) -> None:
    """Bind processes and everything below them to some cores."""
    for pid in pids:
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            for thread in process.threads():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(thread.id, cores)


def make_nice(pid: int, niceness: int) -> None:
    """Let others go before a process and everything below it."""
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        for thread in process.threads():
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, thread.id, niceness)


class Spikes:
    """Bursts of load on one core, at known times."""

    def __init__(self, core: int, burners: int, share: float) -> None:
        self.times: list[tuple[int, int]] = []
        command = [sys.executable, "-S", "-c", _BURNER, str(core), str(share)]
        self._burners = [subprocess.Popen(command) for _ in range(burners)]

    def run(self, count: int, length_s: float, pause_s: float) -> None:
        """So many bursts of one length, with pauses before each."""
        idle = threading.Event()
        for _ in range(count):
            idle.wait(pause_s)
            start = time.time_ns() // 1000
            self._signal(signal.SIGCONT)
            idle.wait(length_s)
            self._signal(signal.SIGSTOP)
            self.times.append((start, time.time_ns() // 1000))

    def _signal(self, number: signal.Signals) -> None:
        for burner in self._burners:
            burner.send_signal(number)

    def close(self) -> None:
        for burner in self._burners:
            burner.kill()
            burner.wait()


def judge(
    spikes: Iterable[tuple[int, int]], alarms: Iterable[int], grace_us: int = 300_000
) -> dict[str, float]:
    """How many spikes were noticed, how soon, and how many alarms were about nothing."""
    listed, raised = list(spikes), sorted(alarms)
    delays = []
    for start, end in listed:
        during = [at for at in raised if start <= at < end + grace_us]
        if during:
            delays.append((during[0] - start) / 1000)
    false = [at for at in raised if not any(start <= at < end + grace_us for start, end in listed)]
    return {
        "spikes": len(listed),
        "detection_ratio": round(len(delays) / len(listed), 3) if listed else 0.0,
        "detection_ms": round(sum(delays) / len(delays), 1) if delays else 0.0,
        "alarms": len(raised),
        "false_alarm_ratio": round(len(false) / len(raised), 3) if raised else 0.0,
    }
