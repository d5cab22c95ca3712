"""``holdfast status`` and ``top``: whole in a pipe, JSON for programs, quiet when nobody reads."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.cluster.status import node_status
from holdfast.commands.status_table import NodeReport, _row, _says
from holdfast.deployment import Deployment
from holdfast.plans.addresses import Addresses
from tests.processes.planned import planned

DEPLOYMENT = """
name = "small"
network = "network.py"
[sources.load]
[fragments.main]
"""
LONG = "a long story of what went wrong, " * 8 + "and its end"


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """Its processes are gone, and one has much to say."""
    found = planned(tmp_path, DEPLOYMENT)
    Addresses.choose(found)
    gone = {"pid": 1234567, "restarts": 3, "uptime_s": 0.0}
    states = {"entry-load": {**gone, "problem": LONG}, "main-1": {**gone, "problem": None}}
    (found.data / "processes.json").write_text(json.dumps(states))
    return found


def holdfast(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "holdfast.cli", *arguments]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")


@pytest.mark.parametrize("command", [["status"], ["top", "--seconds", "0"]])
def test_in_a_pipe_nothing_is_cut(
    deployment: Deployment, command: list[str], narrow: None, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*command, str(deployment.path)])
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line for line in lines if line.startswith("entry-load")]
    assert row.split()[:4] == ["entry-load", "entry-load", "1234567", "3"]
    assert row.endswith(LONG)


def test_programs_get_json(deployment: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json", str(deployment.path)]) == 1  # nobody supervises it
    found = json.loads(capsys.readouterr().out)
    assert (found["deployment"], found["supervisor"]) == ("small", None)
    node = found["nodes"]["entry-load"]
    assert (node["process"], node["server"], node["pid"]) == ("entry-load", None, 1234567)
    assert node["says"] == LONG
    assert "error" in node["status"]


def test_how_x_is_divided_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(tmp_path, DEPLOYMENT + '[outputs.out]\ndelay = "5 seconds"\n')
    Addresses.choose(found)
    (found.data / "processes.json").write_text("{}")
    main(["status", "--json", str(found.path)])
    outputs = json.loads(capsys.readouterr().out)["outputs"]
    divided = {"asked": True, "divide": "equal", "fragments": {"main": 5.0}}
    assert outputs == {"out": {"delay_s": 5.0, **divided}}
    main(["status", str(found.path)])
    assert "output out: X = 5 s from the sources, as asked" in capsys.readouterr().out


def test_who_reads_no_further_gets_no_traceback(deployment: Deployment) -> None:
    command = holdfast("status", str(deployment.path))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as errors:
        said = errors.read().decode()
    assert process.wait(60) == 0
    assert said == ""


def test_a_row_says_why_an_output_is_tentative() -> None:
    node = {"state": "up_failure", "tentative": {"busy": {"missing": {"load": 0}, "share": 0.5}}}
    says = _says({}, node)
    assert says == (
        "busy is tentative: load missing since 1970-01-01T00:00:00.000Z, on 50 % of the usual data"
    )


def test_a_node_that_listens_and_does_not_answer_is_slow_and_not_gone(
    deployment: Deployment,
) -> None:
    address = Addresses.read(deployment).of("main-1")
    with contextlib.closing(socket.create_server((address.host, address.port))):
        found = node_status(deployment, ["entry-load", "main-1"], within_s=0.5)
    assert found["main-1"]["state"] == "slow"
    assert found["main-1"]["error"].startswith("did not answer within 0.5 s")
    row = _row(NodeReport("main-1", "main-1", None, {}, found["main-1"]), None)
    assert row[4] == "slow"
    assert row[7].startswith("did not answer within 0.5 s")
    assert "state" not in found["entry-load"]
    assert found["entry-load"]["error"].startswith("cannot be reached")
