"""Detection of overload, and false alarms, by heartbeats and by benchmarking (Fig. 12, 13).

Two hybrid fragments on one machine, one watched by missed heartbeats, the other by the timed
standard set; an alarm is the moment its other copy wakes. The machine is one core from its start,
or the benchmark would be that of two; bursts of load come and go on it (standby_load.py). A spike
is detected if there is an alarm while it lasts or just after it; an alarm at any other time is
false.
"""

from __future__ import annotations

import os

from benchmarks.journals import entries
from benchmarks.standby_chain import Chain, now_us
from benchmarks.standby_load import Spikes, bind, judge

DETECTORS = ("heartbeat", "benchmark")
SPIKE_SECONDS = 1.0
# Long enough for the copy that woke to go back to sleep.
PAUSE_SECONDS = 1.5


def measure(chain: Chain, share: float, spikes: int) -> dict[str, object]:
    """Detector -> what it noticed of spikes that take this share of a machine."""
    pids = {name: chain.supervisor.pid(name) for name in chain.deployment.processes}
    first = pids["first"]
    assert first is not None
    bind([pid for name, pid in pids.items() if pid and name != "first"], {1})
    bind([os.getpid()], {1})
    try:
        return _at(chain, first, share, spikes)
    finally:
        bind([os.getpid()], set(range(os.cpu_count() or 1)))


def _at(chain: Chain, pid: int, share: float, spikes: int) -> dict[str, object]:
    since = now_us()
    load = Spikes(pid, 0, share)
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
