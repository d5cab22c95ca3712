"""What machine a figure was measured on, for the record beside it."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path
from typing import Any

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
