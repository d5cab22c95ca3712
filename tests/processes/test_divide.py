"""``holdfast divide``: what jobs need is measured, kept for the next start, and then the same for
everybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.cluster import status
from holdfast.cluster.supervisor import Supervisor
from holdfast.commands.divide import measure
from holdfast.deployment import Deployment, DeploymentError, load_deployment, read_tables
from holdfast.durable import Damaged
from holdfast.plans.addresses import Addresses
from holdfast.plans.measured_file import adopt, keep_measured, next_path
from holdfast.plans.plan import deployed, read_plan
from holdfast.plans.topology import reach
from tests.processes.planned import planned

DEPLOYMENT = """
name = "small"
network = "network.py"
[sources.load]
[fragments.main]
replicas = 2
[outputs.out]
delay = "5 seconds"
divide = "measured"
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    found = planned(tmp_path, DEPLOYMENT)
    Addresses.choose(found)
    (found.data / "processes.json").write_text("{}")
    return found


def says(monkeypatch: pytest.MonkeyPatch, **needs_s: float | None) -> None:
    """What the replicas say when they are asked."""

    def answer(deployment: Deployment, nodes: list[str], *_: Any) -> dict[str, dict[str, Any]]:
        return {name: {"need_s": needs_s.get(name.replace("-", "_"))} for name in nodes}

    monkeypatch.setattr(status, "node_status", answer)


def test_it_counts_from_the_next_start_on(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    says(monkeypatch, main_1=0.25, main_2=0.5)
    assert main(["divide", str(deployment.path), "--seconds", "0"]) == 0
    said = capsys.readouterr().out
    assert "fragment main: 5 s (1 on its longest path; its jobs need 0.5 s)" in said
    assert said.endswith("kept: from the next holdfast up on, X is divided so\n")
    # A process that is restarted now goes by what the others go by.
    assert load_deployment(deployment.path).measured == {}
    main(["status", str(deployment.path)])
    shown = capsys.readouterr().out
    assert "divided equally: what jobs need is not measured yet" in shown
    assert "measured since: holdfast up divides by it when it starts next" in shown

    started = adopt(load_deployment(deployment.path))
    assert started.measured == {"main": 500_000} == load_deployment(deployment.path).measured
    main(["status", "--json", str(deployment.path)])
    outputs = json.loads(capsys.readouterr().out)["outputs"]
    assert (outputs["out"]["divide"], outputs["out"]["needs_s"]) == ("measured", {"main": 0.5})
    assert adopt(started) == started


def test_whoever_starts_it_goes_by_what_was_measured(deployment: Deployment) -> None:
    text = deployment.path.read_text() + '[clients.reader]\noutput = "nobody"\n'
    deployment.path.write_text(text)
    keep_measured(deployment.data, {"main": 300_000})
    supervisor = Supervisor(load_deployment(deployment.path))
    with pytest.raises(DeploymentError, match="no output 'nobody'"):  # nothing is started
        supervisor.start()
    supervisor.stop()
    assert supervisor.deployment.measured == {"main": 300_000}
    assert not next_path(deployment.data).exists()
    assert load_deployment(deployment.path).measured == {"main": 300_000}


def test_servers_are_sent_it_with_the_tables(deployment: Deployment, tmp_path: Path) -> None:
    keep_measured(deployment.data, {"main": 300_000})
    adopt(deployment)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "network.py").write_text("")
    (elsewhere / "deployment.json").write_text(json.dumps(read_tables(deployment.path)))
    assert load_deployment(elsewhere / "deployment.json").measured == {"main": 300_000}


def test_without_an_answer_of_every_fragment_nothing_is_kept(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    says(monkeypatch, main_1=None)
    assert main(["divide", str(deployment.path), "--seconds", "0"]) == 1
    assert "no replica of main says what its jobs need" in capsys.readouterr().err
    assert not next_path(deployment.data).exists()


def test_the_slowest_answer_counts(deployment: Deployment) -> None:
    plan = deployed(deployment, read_plan(deployment))
    answers = iter([{"main-1": {"need_s": 0.5}}, {"main-1": {"need_s": 0.2}, "main-2": {}}])
    assert measure(deployment, plan, lambda: next(answers), 1.5) == {"main": 500_000}


def test_where_nothing_is_divided_so_it_says_how(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = planned(tmp_path, DEPLOYMENT.replace('divide = "measured"', ""))
    assert main(["divide", str(found.path)]) == 1
    assert 'divide = "measured"' in capsys.readouterr().err


def test_what_cannot_be_is_refused(deployment: Deployment) -> None:
    text = deployment.path.read_text()
    deployment.path.write_text(text.replace('"measured"', '"fairly"'))
    with pytest.raises(DeploymentError, match=r"outputs.out.divide: it is one of equal, measured"):
        load_deployment(deployment.path)
    deployment.path.write_text(f"{text}\n[measured]\nmain = 1\n")
    with pytest.raises(DeploymentError, match="what jobs need is measured by holdfast divide"):
        load_deployment(deployment.path)
    deployment.path.write_text(text)
    keep_measured(deployment.data, {"main": 300_000})
    adopt(deployment)
    file = deployment.data / "measured.json"
    file.write_text(file.read_text().replace("300000", "300001"))
    with pytest.raises(Damaged):
        reach(deployment.path)


def test_a_submission_is_not_measured(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted = deployment.path.with_suffix(".json")
    submitted.write_text(json.dumps(read_tables(deployment.path)))
    assert main(["divide", str(submitted)]) == 1
    assert "a cluster divides X as it was told then" in capsys.readouterr().err
