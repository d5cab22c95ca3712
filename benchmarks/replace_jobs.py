"""How long the jobs of replicas take, by the metrics of their processes."""

from __future__ import annotations

import re
import threading
import urllib.request
from statistics import median

from benchmarks.standby_chain import now_us
from holdfast.deployment import Deployment
from holdfast.plans.addresses import Addresses

LOOK_SECONDS = 0.1
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


class JobTimes:
    """The jobs of a replica that has a process to itself, one by one."""

    def __init__(self, deployment: Deployment, replica: str) -> None:
        self._deployment = deployment
        self._replica = replica
        self._found: list[tuple[int, float]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        count, total = self._read()
        while not self._stopping.wait(LOOK_SECONDS):
            now_count, now_total = self._read()
            if now_count == count + 1:
                self._found.append((now_us(), (now_total - total) * 1e3))
            count, total = now_count, now_total

    def _read(self) -> tuple[float, float]:
        return job_totals(self._deployment, self._replica).get(self._replica, (0.0, 0.0))

    def ms(self, since: int, until: int) -> float:
        """The median of a stretch."""
        found = [took for at, took in list(self._found) if since <= at < until]
        if not found:
            raise RuntimeError("no job was seen by itself: buckets do not come one by one")
        return median(found)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(15.0)
