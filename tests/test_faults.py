"""The faults benchmark, as far as it can be tried without processes."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any, cast

from benchmarks.faults_deployment import NETWORK, PROTECTIONS, REPLICAS, deployment_text
from benchmarks.faults_kinds import AT_ALL, AT_REPLICAS, FILES, QUICK
from benchmarks.faults_page import page_of
from benchmarks.faults_watch import SILENT_SECONDS, Watch
from holdfast.deployment import load_deployment


def test_its_deployment_has_a_fragment_for_each_protection(tmp_path: Path) -> None:
    shutil.copy(NETWORK, tmp_path / "network.py")
    (tmp_path / "deployment.toml").write_text(deployment_text())
    deployment = load_deployment(tmp_path / "deployment.toml")
    assert set(deployment.fragments) == set(PROTECTIONS)
    assert deployment.chaos
    for processes, _ in FILES.values():
        assert set(processes) <= set(deployment.processes)
    first, second = (set(deployment.processes[name]) for name in REPLICAS)
    assert first == {f"{name}-1" for name in PROTECTIONS}
    assert second == {f"{name}-2" for name in PROTECTIONS[1:]}


def test_there_are_enough_kinds() -> None:
    kinds = {*AT_REPLICAS, *AT_ALL, "messages"}
    assert len(kinds) >= 14
    assert len(kinds) * len(PROTECTIONS) >= 60
    assert set(QUICK) <= kinds
    assert len(QUICK) * len(PROTECTIONS) >= 20


class Quiet:
    """A deployment whose nodes say what they are told to."""

    def __init__(self) -> None:
        self.said: dict[str, dict[str, Any]] = {}

    def statuses(self) -> dict[str, dict[str, Any]]:
        return self.said


class Reads:
    """A reader that got its last result a while ago."""

    def __init__(self, ago_s: float) -> None:
        self.result_at = time.monotonic() - ago_s


def test_silence_is_no_result_and_no_error() -> None:
    told: list[str] = []
    watch = Watch.__new__(Watch)
    readers = cast(Any, {"none": Reads(99.0), "active": Reads(1.0)})
    watch._begin(cast(Any, Quiet()), readers, told.append)
    watch._said_at["none"] -= SILENT_SECONDS + 1
    watch.look({"none-1": {"problems": ["no room"]}, "sink-active": {}})
    assert watch.silent == []
    watch._said_at["none"] -= SILENT_SECONDS + 1
    watch.look({"none-1": {"problems": []}})
    watch.look({})
    # Told once for a stretch.
    assert len(watch.silent) == 1
    assert "none: no result for 99 s" in watch.silent[0]
    watch.look({"entry-load": {"error": "cannot be reached"}})
    watch._said_at["none"] -= SILENT_SECONDS + 1
    watch.look({})
    assert len(watch.silent) == 2


def test_the_page_has_every_figure() -> None:
    told = {
        **{"faults": 25, "kinds": 5, "silent": 0, "lost": 0, "doubled": 0, "differing": 0},
        **{"by_protection": {"none": 5}, "recovery_s_max": 31.5, "fuzzed_messages": 10_000},
        **{"timed_out_messages": 0, "exits": 0, "unrecovered": [], "x_s": 4.0, "results": 1_234},
        **{"recovery_s": {"kill-jvm": {"none": 31.5}}, "seconds": 290.0},
        "machine": {"cores": 2, "cpu": "some", "memory_gib": 24, "date": "2026-11-16"},
    }
    page = page_of(told, "make bench BENCH=faults")
    for text in ("10,000", "1,234", "| kill-jvm | 31.5 | – |", "24 GiB"):
        assert text in page
