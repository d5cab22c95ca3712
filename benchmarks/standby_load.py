"""CPU load on one core: a machine that is too busy for what else runs on it (Fig. 12, 13).

Each machine of this experiment is one core. The process under test is bound to it and shares it
with a burner, a program that does nothing but count. Linux would let the process go first, however
many others count: it sleeps now and then, and who wakes up goes before who never sleeps. So the
shares are dealt out, as the CPU quota of a container does it: of every cycle (disturbances.py) the
burner has its share for itself, while the process stands still. Everything else runs on the other
cores and does not notice.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable

import psutil

from holdfast.cluster.disturbances import Disturbance, carry_out

_BURNER = """
import os, sys
parent = os.getppid()
os.sched_setaffinity(0, {int(sys.argv[1])})
os.kill(os.getpid(), 19)
while os.getppid() == parent:
    pass
"""


def bind(pids: Iterable[int], cores: set[int]) -> None:
    """Bind processes and everything below them to some cores."""
    for pid in pids:
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            for thread in process.threads():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(thread.id, cores)


class Spikes:
    """Bursts of load on the core of a process and all below it, at known times."""

    def __init__(self, pid: int, core: int, share: float) -> None:
        self.times: list[tuple[int, int]] = []
        self._share = share
        found = psutil.Process(pid)
        self._slowed = [pid, *(child.pid for child in found.children(recursive=True))]
        self._burner = subprocess.Popen([sys.executable, "-S", "-c", _BURNER, str(core)])

    def run(self, count: int, length_s: float, pause_s: float) -> None:
        """So many bursts of one length, with pauses before each."""
        for _ in range(count):
            time.sleep(pause_s)
            start = time.time_ns() // 1000
            carry_out(Disturbance(length_s, "slowed", share=1 - self._share), self._signal)
            self.times.append((start, time.time_ns() // 1000))

    def _signal(self, number: signal.Signals) -> None:
        """The process stops or goes on, and the burner does the opposite."""
        for pid in self._slowed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        stops = number is signal.SIGSTOP
        self._burner.send_signal(signal.SIGCONT if stops else signal.SIGSTOP)

    def close(self) -> None:
        self._signal(signal.SIGCONT)
        self._burner.kill()
        self._burner.wait()


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
