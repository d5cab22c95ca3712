"""How busy the processors are: what gives way to others counts only where it is asked for."""

from __future__ import annotations

import os
from types import SimpleNamespace

import psutil
import pytest

from holdfast.nodes.load import CpuLoad


def spent(user: float, nice: float, idle: float) -> list[SimpleNamespace]:
    """What each processor has spent its time on, of as many as there are."""
    rest = {"system": 0.0, "irq": 0.0, "softirq": 0.0, "steal": 0.0, "iowait": 0.0}
    one = SimpleNamespace(user=user, nice=nice, idle=idle, **rest)
    return [one] * (max(os.sched_getaffinity(0)) + 1)


@pytest.mark.parametrize(("nice", "share"), [(True, 0.75), (False, 0.25)])
def test_the_share_that_was_used(monkeypatch: pytest.MonkeyPatch, nice: bool, share: float) -> None:
    said = iter([spent(10, 10, 10), spent(11, 12, 11), spent(11, 12, 11)])
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: next(said))
    load = CpuLoad(nice)
    assert load.look() == pytest.approx(share)
    assert load.look() == 0.0, "no time has passed"
