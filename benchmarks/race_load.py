"""What the processes of a run cost the machine: its time, and the jobs, for benchmark race."""

from __future__ import annotations

import time
import urllib.request
from dataclasses import dataclass

import psutil

from holdfast.deployment import Deployment
from holdfast.plans.addresses import Addresses

_JOBS, _SECONDS = "holdfast_job_seconds_count", "holdfast_job_seconds_sum"


@dataclass(frozen=True)
class Load:
    """Over some time.

    busy  the share of the machine's processors in use, by whomever.
    own   the share that this process and those it started had.
    """

    busy: float
    own: float
    jobs_per_second: float
    job_ms: float


class LoadMeter:
    """Measures from when it is made."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._jobs = self._count_jobs()
        self._own = _own_seconds()
        self._started = time.monotonic()
        psutil.cpu_percent()

    def read(self) -> Load:
        busy = psutil.cpu_percent() / 100
        seconds = time.monotonic() - self._started
        before, own = self._own, _own_seconds()
        # Who has come since was not there before; who has gone is left out.
        used = sum(own[name] - before.get(name, 0.0) for name in own)
        jobs, job_seconds = (
            now - then for now, then in zip(self._count_jobs(), self._jobs, strict=True)
        )
        share = used / seconds / (psutil.cpu_count() or 1)
        return Load(busy, share, jobs / seconds, 1_000 * job_seconds / max(jobs, 1.0))

    def _count_jobs(self) -> tuple[float, float]:
        """Jobs of all replicas so far, and the seconds they took."""
        found = {_JOBS: 0.0, _SECONDS: 0.0}
        addresses = Addresses.read(self._deployment)
        for process in self._deployment.processes:
            host, port = addresses.metrics(process)
            with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
                for line in answer.read().decode().splitlines():
                    name, brace, rest = line.partition("{")
                    if brace and name in found:
                        found[name] += float(rest.rpartition(" ")[2])
        return found[_JOBS], found[_SECONDS]


def _own_seconds() -> dict[tuple[int, float], float]:
    """Processor time of this process and all below it, by its number and beginning."""
    me = psutil.Process()
    found = {}
    for one in [me, *me.children(recursive=True)]:
        try:
            times = one.cpu_times()
            found[one.pid, one.create_time()] = times.user + times.system
        except psutil.Error:
            continue  # it has just ended
    return found
