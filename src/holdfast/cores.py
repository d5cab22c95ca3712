"""How many cores this process may use.

A container may be held to two cores' worth of time on a machine of 64 without being held to any two
of them: its control group says so, or one of those that it lies in.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path


def available_cores(root: Path = Path("/")) -> int:
    """At least one; ``root`` is where /proc and /sys are."""
    have = len(os.sched_getaffinity(0))
    return max(1, min([have, *map(math.ceil, _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """How many cores' worth of time each of this process's control groups has, where it is said."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    groups = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            tops = [groups, groups / "unified"]
        elif "cpu" in controllers.split(","):
            tops = [groups / "cpu", groups / controllers]
        else:
            continue
        for top in tops:
            own = Path(path.strip("/"))
            # Inside a container the path may be the one outside; then the top is its own group.
            for group in (own, *own.parents):
                yield from _quota(top / group)


def _quota(group: Path) -> Iterator[float]:
    """The one of this directory, if it has one."""
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (group / "cpu.max").read_text().split()
        yield int(quota) / int(period)  # "max" is no number, and no quota
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        given = int((group / "cpu.cfs_quota_us").read_text())
        if given > 0:
            yield given / int((group / "cpu.cfs_period_us").read_text())
