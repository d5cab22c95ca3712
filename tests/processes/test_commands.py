"""The commands on deployments that are not running, or wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.deployment import load_deployment
from holdfast.plans.addresses import Addresses

EXAMPLE = Path(__file__).parents[2] / "examples" / "deployment"


@pytest.fixture
def deployment(tmp_path: Path) -> str:
    for name in ("network.py", "deployment.toml"):
        shutil.copy(EXAMPLE / name, tmp_path / name)
    return str(tmp_path / "deployment.toml")


@pytest.mark.parametrize("command", [["status"], ["down"], ["chaos"]])
def test_what_is_not_running_is_said(
    deployment: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["kill", "worker"] if command == ["chaos"] else []
    assert main([*command, deployment, *more]) == 1
    assert "is not running here" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "nowhere.toml"]) == 1
    assert "nowhere.toml: cannot be read" in capsys.readouterr().err


def test_listening_for_others_is_refused_before_anything_starts(
    deployment: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(deployment)
    text = path.read_text().replace("[sources.load]", '[sources.load]\nlisten = "0.0.0.0:4711"')
    path.write_text(text)
    assert main(["up", deployment]) == 1
    assert "needs a token and TLS" in capsys.readouterr().err


def test_ports_are_chosen_once(deployment: str) -> None:
    found = load_deployment(deployment)
    first = Addresses.choose(found)
    assert Addresses.choose(found) == first == Addresses.read(found)
    ports = [endpoint.port for endpoint in first.nodes.values()]
    assert len(set(ports)) == len(ports) == 5
