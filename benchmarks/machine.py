"""What machine a figure was measured on, for the record beside it."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory, versions, the date, and how busy it was in the last minutes."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "load_5_minutes": round(os.getloadavg()[1], 1),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    }


def machine_text(machine: dict[str, Any]) -> str:
    """The same in words, for a page."""
    said = (
        f"{machine['cores']} cores of an {machine['cpu']}, {machine['memory_gib']} GiB, "
        f"{machine['date']}"
    )
    load = machine.get("load_5_minutes")
    return said if load is None else f"{said}, load {load:g} on average over 5 minutes"


def descendants_cpu_s() -> float:
    """How long all processes below this one have had a processor, those that ended included."""
    found = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found += times.user + times.system + times.children_user + times.children_system
    return found


def workers_memory_bytes() -> int:
    """Memory of Python's processes below this one that is of no file."""
    found = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, OSError):
            if process.name().startswith("python"):
                lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
                found += sum(int(each.split()[1]) << 10 for each in lines if "Anonymous:" in each)
    return found


class Memory:
    """The most memory that a process and all below it had at once; what they share counts once."""

    def __init__(self, pid: int, every_s: float = 0.5) -> None:
        self._process = psutil.Process(pid)
        self._every_s = every_s
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self.peak_gib = 0.0

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._watcher.join()

    def _watch(self) -> None:
        while True:
            self.peak_gib = max(self.peak_gib, self._now_gib())
            if self._stopping.wait(self._every_s):
                return

    def _now_gib(self) -> float:
        total = 0
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in (self._process, *self._process.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    total += each.memory_full_info().pss
        return float(total / 2**30)
