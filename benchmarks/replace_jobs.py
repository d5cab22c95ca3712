"""How long the jobs of replicas take, by the metrics of their processes."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.replace_setting import BUCKET_SECONDS
from benchmarks.standby_chain import now_us
from holdfast.deployment import Deployment
from holdfast.plans.addresses import Addresses

LOOK_SECONDS = 0.1
# Two jobs of one bucket are seen within half of one.
SAME_BUCKET_US = round(BUCKET_SECONDS * 5e5)
_LINE = re.compile(r'holdfast_job_seconds_(count|sum)\{.*node="([^"]+)".*\} (\S+)')


def job_totals(deployment: Deployment, process: str) -> dict[str, tuple[float, float]]:
    """Of each node that has run a job: how many, and the seconds of all together."""
    host, port = Addresses.read(deployment).metrics(process)
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10.0) as answer:
        return read_totals(answer.read().decode())


def read_totals(text: str) -> dict[str, tuple[float, float]]:
    found: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match:
            found.setdefault(match[2], {})[match[1]] = float(match[3])
    return {node: (each["count"], each["sum"]) for node, each in found.items() if each["count"]}


@dataclass(frozen=True)
class Job:
    """When a job was over, as it was seen, and how long it took."""

    at: int
    ms: float


@dataclass(frozen=True)
class Stretch:
    """The jobs of a replica and those of a control in one stretch of time."""

    jobs: Sequence[Job]
    control: Sequence[Job]

    @property
    def ms(self) -> float:
        return median_ms(self.jobs)

    @property
    def control_ms(self) -> float:
        return median_ms(self.control)

    @property
    def beside(self) -> float:
        """The median of a job's time over that of the control's job of the same bucket.

        Both run at the same moment: what the machine was slower by, and be it for ten seconds of
        the stretch, both are. Of two medians over a stretch such seconds may decide one only.
        """
        ratios = []
        for job in self.jobs:
            other = min(self.control, key=lambda one: abs(one.at - job.at), default=None)
            if other is not None and abs(other.at - job.at) < SAME_BUCKET_US:
                ratios.append(job.ms / other.ms)
        if not ratios:
            raise RuntimeError("no job of the control was seen beside one of the replica")
        return median(ratios)


def median_ms(jobs: Sequence[Job]) -> float:
    if not jobs:
        raise RuntimeError("no job was seen by itself: buckets do not come one by one")
    return median(job.ms for job in jobs)


class JobTimes:
    """The jobs of a replica that has a process to itself, one by one."""

    def __init__(self, deployment: Deployment, replica: str) -> None:
        self._deployment = deployment
        self._replica = replica
        self._found: list[Job] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        count, total = self._read()
        while not self._stopping.wait(LOOK_SECONDS):
            now_count, now_total = self._read()
            if now_count == count + 1:
                self._found.append(Job(now_us(), (now_total - total) * 1e3))
            count, total = now_count, now_total

    def _read(self) -> tuple[float, float]:
        return job_totals(self._deployment, self._replica).get(self._replica, (0.0, 0.0))

    def seen(self, since: int, until: int) -> list[Job]:
        """Those of a stretch."""
        return [job for job in list(self._found) if since <= job.at < until]

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(15.0)
