"""What processes use of their machine, their JVMs and workers counted, as Linux counts it.

Every process of a deployment is a process group of its own, with its JVM in it; so what it uses is
the sum over its group. One look at /proc is enough for all of them.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_STOPPED = "T"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class _Stat:
    """A process as /proc/PID/stat tells of it."""

    pid: int
    command: str
    state: str
    group: int
    cpu_s: float
    memory_bytes: int


def usage(groups: Collection[int]) -> dict[int, dict[str, Any]]:
    """CPU seconds, resident memory, and whether it is paused, of each group that there is."""
    found: dict[int, dict[str, Any]] = {}
    for each in _stats():
        if each.group in groups:
            one = found.setdefault(each.group, {"cpu_s": 0.0, "memory_bytes": 0, "paused": False})
            one["cpu_s"] += each.cpu_s
            one["memory_bytes"] += each.memory_bytes
            one["paused"] |= each.pid == each.group and each.state == _STOPPED
    return found


def with_usage(states: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The states of processes of this machine, with what they use of it."""
    used = usage({each["pid"] for each in states.values() if each.get("pid")})
    return {name: {**each, **used.get(each.get("pid") or 0, {})} for name, each in states.items()}


def jvm_of(group: int) -> int | None:
    """The JVM of a process; None if it has none, or none now."""
    return next((each.pid for each in _stats() if each.group == group and _is_jvm(each)), None)


def signal_jvm(group: int | None, number: signal.Signals) -> int | None:
    """Signal the JVM of a process and nothing else of it; its pid, None if there is none now."""
    jvm = None if group is None else jvm_of(group)
    if jvm is not None:
        try:
            os.kill(jvm, number)
        except ProcessLookupError:
            return None
    return jvm


def _is_jvm(stat: _Stat) -> bool:
    return stat.command == "java"


def _stats() -> Iterator[_Stat]:
    for name in os.listdir(_PROC):  # noqa: PTH208 (names are enough, there are many)
        if name.isdigit():
            # It may end while we look.
            with contextlib.suppress(OSError, ValueError, IndexError):
                yield _parsed(int(name), (_PROC / name / "stat").read_text())


def _parsed(pid: int, text: str) -> _Stat:
    # The command stands in brackets and may have any character in it, brackets too.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return _Stat(
        pid,
        head.partition("(")[2],
        fields[0],
        int(fields[2]),
        (int(fields[11]) + int(fields[12])) / _TICKS,
        int(fields[21]) * _PAGE_BYTES,
    )
