"""A data directory goes on with the query it was made with, and with no other."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.cluster import planning
from holdfast.cluster.supervisor import Supervisor
from holdfast.deployment import Deployment, load_deployment
from holdfast.errors import StateError
from holdfast.plans.plan import FORMAT, REFUSED, is_planned, plan_path, read_plan

NETWORK = """
from lengths import LENGTH

from holdfast import Network, window

network = Network("sums", bucket="200 ms")
load = network.source("load", "server string, n bigint")
load.groupBy(window(LENGTH), "server").agg("sum(n) AS total").output("sums")
"""
DEPLOYMENT = """
name = "sums"
network = "network.py"
[sources.load]
[fragments.main]
replicas = 1
[clients.out]
output = "sums"
"""


class Place:
    """A deployment whose planning runs in this process, which has a Spark session."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self._monkeypatch = monkeypatch
        self.write("network.py", NETWORK)
        self.write("lengths.py", 'LENGTH = "1 s"\n')
        self.write("deployment.toml", DEPLOYMENT)
        self.deployment: Deployment = load_deployment(directory / "deployment.toml")

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def keep_state(self) -> Path:
        state = self.deployment.data / "processes" / "main-1" / "checkpoints" / "1.arrow"
        state.parent.mkdir(parents=True)
        state.write_bytes(b"state")
        return state

    def plan(self, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
        """Plan as ``holdfast up`` does; the exit code and what was said."""
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "path", sys.path[:])
            patch.setattr(sys, "modules", dict(sys.modules))
            patch.setattr(sys, "dont_write_bytecode", True)
            patch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
            code = planning.main([str(self.deployment.path), *options])
        return code, capsys.readouterr().err


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Place:
    return Place(tmp_path, monkeypatch)


def test_a_file_that_the_network_imports_makes_a_new_plan(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not is_planned(place.deployment)
    assert place.plan(capsys) == (0, "")
    assert is_planned(place.deployment)
    before = read_plan(place.deployment).fragments["main"]
    place.write("lengths.py", 'LENGTH = "2 s"\n')
    assert not is_planned(place.deployment)
    # Nobody has kept anything yet, so it may be another query.
    assert place.plan(capsys) == (0, "")
    assert is_planned(place.deployment)
    after = read_plan(place.deployment).fragments["main"]
    assert before.identity != after.identity
    assert "aggregate_1: window=TimeWindow(size=2000000, advance=2000000)" in after.description


def test_another_query_is_refused_before_anything_starts(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert place.plan(capsys) == (0, "")
    written = plan_path(place.deployment).read_bytes()
    place.keep_state()
    place.write("lengths.py", 'LENGTH = "2 s"\n')

    class Planning:
        """The process, with what Spark says before; it has ended by the time it is asked."""

        pid = 0

        def __init__(self, command: list[str], **_: Any) -> None:
            assert command[1:] == ["-m", "holdfast.cluster.planning", str(place.deployment.path)]
            self.returncode, said = place.plan(capsys)
            self._said = f"WARN: a few lines\n{said}".encode()

        def __enter__(self) -> Planning:
            return self

        def __exit__(self, *_: object) -> None: ...

        def communicate(self, timeout: float) -> tuple[bytes, bytes]:
            return b"", self._said

    monkeypatch.setattr("holdfast.cluster.starting.subprocess.Popen", Planning)
    monkeypatch.setattr("holdfast.cluster.starting.os.killpg", lambda *_: None)
    supervisor = Supervisor(place.deployment)
    with pytest.raises(StateError) as caught:
        supervisor.start()
    supervisor.stop()
    text = str(caught.value)
    assert text.startswith("fragment 'main' in the data directory ")
    assert "was  aggregate_1: window=TimeWindow(size=1000000, advance=1000000)" in text
    assert "now  aggregate_1: window=TimeWindow(size=2000000, advance=2000000)" in text
    assert plan_path(place.deployment).read_bytes() == written
    assert not (place.deployment.data / "addresses.json").exists()
    assert not (place.deployment.data / "logs").exists()


def test_what_computes_the_same_goes_on_and_other_sources_do_not(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.plan(capsys) == (0, "")
    place.keep_state()
    place.write("lengths.py", '# in seconds\nLENGTH = "1000 ms"\n')
    assert not is_planned(place.deployment)
    assert place.plan(capsys) == (0, "")
    assert is_planned(place.deployment)
    place.write("network.py", NETWORK.replace('n bigint"', 'n bigint", key="server"'))
    code, said = place.plan(capsys)
    assert code == REFUSED
    problem = json.loads(said)
    assert "source 'load' in the data directory" in problem
    assert "was  key: None\n  now  key: server" in problem
    assert problem.endswith("holdfast up --from-now")
    code, said = place.plan(capsys, "--from-now")
    assert (code, "source 'load' has changed" in said) == (REFUSED, True)


def test_from_now_needs_a_place_to_go_on_from(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.plan(capsys) == (0, "")
    place.keep_state()
    place.write("lengths.py", 'LENGTH = "2 s"\n')
    code, said = place.plan(capsys, "--from-now")
    assert code == REFUSED
    assert "no replica of 'main' has kept its place" in said
    assert not is_planned(place.deployment)


def test_the_plan_of_another_version_is_refused_when_there_is_state(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    plan_path(place.deployment).parent.mkdir(parents=True)
    plan_path(place.deployment).write_text('{"format": 1}')
    state = place.keep_state()
    code, said = place.plan(capsys)
    assert code == REFUSED
    assert f"its plan has format 1, this version reads {FORMAT}" in said
    state.unlink()
    assert place.plan(capsys) == (0, "")
