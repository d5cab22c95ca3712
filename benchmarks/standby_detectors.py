"""Detection of overload, and false alarms, by heartbeats and by benchmarking (Fig. 12, 13).

Two hybrid fragments on one machine, one watched by missed heartbeats, the other by the timed
standard set; an alarm is the moment its other copy wakes. The machine is one core, on which
bursts of load come and go (standby_load.py). A spike is detected if there is an alarm while it
lasts or just after it; an alarm at any other time is false.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from benchmarks.journals import entries
from benchmarks.standby_chain import Chain, now_us
from benchmarks.standby_load import Spikes, bind, judge, make_nice

DETECTORS = ("heartbeat", "benchmark")
NICENESS = 10
SPIKE_SECONDS = 1.0
# Long enough for the copy that woke to go back to sleep.
PAUSE_SECONDS = 1.5


@dataclass(frozen=True)
class Level:
    """So many burners, each for a share of the time."""

    burners: int
    share: float

    @property
    def name(self) -> str:
        return f"{self.burners} x {self.share:.0%}"


def measure(chain: Chain, level: Level, spikes: int) -> dict[str, dict[str, object]]:
    """Level -> detector -> what it noticed."""
    pids = {name: chain.supervisor.pid(name) for name in chain.deployment.processes}
    first = pids["first"]
    assert first is not None
    bind([first], {0})
    make_nice(first, NICENESS)
    bind([pid for name, pid in pids.items() if pid and name != "first"], {1})
    bind([os.getpid()], {1})
    try:
        return {level.name: _at(chain, level, spikes)}
    finally:
        bind([os.getpid()], set(range(os.cpu_count() or 1)))


def _at(chain: Chain, level: Level, spikes: int) -> dict[str, object]:
    since = now_us()
    load = Spikes(0, level.burners, level.share)
    try:
        load.run(spikes, SPIKE_SECONDS, PAUSE_SECONDS)
    finally:
        load.close()
    said = entries(chain.deployment.data, since)
    return {
        detector: judge(
            load.times,
            [
                each.at
                for each in said
                if each.node == f"{detector}-2" and each.fields.get("copy") == "awake"
            ],
        )
        for detector in DETECTORS
    }
