"""What processes use of their machine, their JVMs and workers counted.

Every process of a deployment is a process group of its own, with its JVM in it; so what it uses is
the sum over its group. One look at the processes of the machine is enough for all of them.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import psutil


def usage(groups: Collection[int]) -> dict[int, dict[str, Any]]:
    """CPU seconds, resident memory, and whether it is paused, of each group that there is."""
    found: dict[int, dict[str, Any]] = {}
    for group, process in _members(groups):
        # It may end while we look.
        with contextlib.suppress(psutil.Error), process.oneshot():
            times, memory = process.cpu_times(), process.memory_info()
            stopped = process.status() == psutil.STATUS_STOPPED
            one = found.setdefault(group, {"cpu_s": 0.0, "memory_bytes": 0, "paused": False})
            one["cpu_s"] += times.user + times.system
            one["memory_bytes"] += memory.rss
            one["paused"] |= process.pid == group and stopped
    return found


def with_usage(states: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The states of processes of this machine, with what they use of it."""
    used = usage({each["pid"] for each in states.values() if each.get("pid")})
    return {name: {**each, **used.get(each.get("pid") or 0, {})} for name, each in states.items()}


def jvm_of(group: int) -> int | None:
    """The JVM of a process; None if it has none, or none now."""
    for _, process in _members({group}):
        with contextlib.suppress(psutil.Error):
            if process.name() == "java":
                return process.pid
    return None


def signal_jvm(group: int | None, number: signal.Signals) -> int | None:
    """Signal the JVM of a process and nothing else of it; its pid, None if there is none now."""
    jvm = None if group is None else jvm_of(group)
    if jvm is not None:
        try:
            os.kill(jvm, number)
        except ProcessLookupError:
            return None
    return jvm


def _members(groups: Collection[int]) -> Iterator[tuple[int, psutil.Process]]:
    """The processes of some groups, each with its group."""
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            group = os.getpgid(pid)
            if group in groups:
                yield group, psutil.Process(pid)
