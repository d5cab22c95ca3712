"""The cores of a process are those it may run on, or as many as it has time for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.cores import available_cores


@pytest.fixture(autouse=True)
def _sixty_four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))


def machine(root: Path, group: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": group, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("said", "cores"),
    [("200000 100000", 2), ("150000 100000", 2), ("1000 100000", 1), ("max 100000", 64), ("", 64)],
)
def test_a_quota_of_the_container(tmp_path: Path, said: str, cores: int) -> None:
    root = machine(tmp_path, "0::/\n", {"sys/fs/cgroup/cpu.max": said})
    assert available_cores(root) == cores


def test_the_smallest_quota_of_all_groups_that_lie_in_each_other_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/app.slice/cpu.max": "400000 100000",
        "sys/fs/cgroup/app.slice/one.service/cpu.max": "max 100000",
    }
    root = machine(tmp_path, "0::/app.slice/one.service\n", files)
    assert available_cores(root) == 4


def test_a_quota_where_controllers_have_groups_of_their_own(tmp_path: Path) -> None:
    group = "3:memory:/docker/x\n2:cpu,cpuacct:/docker/x\n1:name=systemd:/\n0::/\n"
    quota, period = "cpu.cfs_quota_us", "cpu.cfs_period_us"
    files = {
        f"sys/fs/cgroup/cpu/{quota}": "300000\n",
        f"sys/fs/cgroup/cpu/{period}": "100000\n",
        f"sys/fs/cgroup/memory/docker/x/{quota}": "100000\n",
    }
    root = machine(tmp_path, group, files)
    assert available_cores(root) == 3
    (root / "sys/fs/cgroup/cpu" / quota).write_text("-1\n")
    assert available_cores(root) == 64


def test_without_a_quota_it_is_those_it_may_run_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert available_cores(tmp_path) == 64
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    root = machine(tmp_path, "0::/\n", {"sys/fs/cgroup/cpu.max": "200000 100000"})
    assert available_cores(root) == 1
