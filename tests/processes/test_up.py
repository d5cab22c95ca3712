"""``holdfast up``: what it refuses before anything starts, how it is stopped, the background."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.cli import main
from holdfast.cluster.remote import RemoteServer
from holdfast.cluster.starting import check_columns, check_connectors, check_logs
from holdfast.cluster.supervisor import Supervisor, SupervisorError, local_state, supervisor_pid
from holdfast.deployment import Deployment, DeploymentError, load_deployment
from holdfast.frames import stream_schema
from holdfast.log import StreamLog
from holdfast.plans.plan import read_plan
from holdfast.ports import free_port
from tests.processes.planned import planned

DEPLOYMENT = """
name = "small"
network = "network.py"
[sources.load]
[fragments.main]
"""


def wait(until: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60.0
    while not until():
        assert time.monotonic() < deadline, f"waited for: {what}"
        time.sleep(0.02)


def test_every_source_and_sink_that_is_none_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = 'from = "ftp:x"\n[fragments.main]\n[clients.writer]\noutput = "out"\nsink = "hdfs:y"'
    text = DEPLOYMENT.replace("[fragments.main]", wrong)
    (tmp_path / "network.py").write_text("")
    (tmp_path / "deployment.toml").write_text(text)
    assert main(["up", str(tmp_path / "deployment.toml")]) == 1
    said = capsys.readouterr().err
    assert "deployment.toml: sources.load.from: 'ftp:x': there is no kind 'ftp'" in said
    assert "deployment.toml: clients.writer.sink: 'hdfs:y': there is no kind 'hdfs'" in said
    assert "cannot be written" not in said
    assert not (tmp_path / "data").exists()


def test_a_file_that_is_not_there_is_refused_and_not_a_process_that_crashes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = DEPLOYMENT.replace("[fragments.main]", 'from = "csv:load.csv"\n[fragments.main]')
    text = text.replace("[sources.load]", '[sources.more]\nfrom = "directory:in"\n[sources.load]')
    (tmp_path / "network.py").write_text("")
    (tmp_path / "deployment.toml").write_text(text)
    assert main(["up", str(tmp_path / "deployment.toml")]) == 1
    said = capsys.readouterr().err
    assert "deployment.toml: sources.load.from: 'csv:load.csv': there is no file 'load.csv'" in said
    assert "sources.more.from: 'directory:in': there is no directory 'in'; make it first" in said
    assert not (tmp_path / "data").exists()


def test_what_a_deployment_names_is_looked_for_beside_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = 'from = "csv:load.csv"\n[fragments.main]\n[clients.writer]\noutput = "out"\n'
    wrong += 'sink = "call:alarm.py:ring"'
    (tmp_path / "deployment.toml").write_text(DEPLOYMENT.replace("[fragments.main]", wrong))
    (tmp_path / "network.py").write_text("")
    (tmp_path / "load.csv").write_text("number\n")
    (tmp_path / "alarm.py").write_text("def ring(table): ...\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    check_connectors(load_deployment(tmp_path / "deployment.toml"))
    assert Path.cwd() == elsewhere


def test_files_that_lack_a_column_are_refused_before_anything_starts(tmp_path: Path) -> None:
    text = DEPLOYMENT.replace("[sources.load]", '[sources.load]\nfrom = "csv:load.csv"')
    (tmp_path / "load.csv").write_text("number,texts\n1,a\n")
    deployment = planned(tmp_path, text)
    with pytest.raises(DeploymentError, match=r"sources.load.from: .*no column 'text'") as refused:
        check_columns(deployment, read_plan(deployment))
    assert "its header names ['number', 'texts']" in str(refused.value)
    (tmp_path / "load.csv").write_text("number,text\n1,a\n")
    check_columns(deployment, read_plan(deployment))


def test_a_sink_whose_key_is_no_column_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """Each would end its client again and again, and say so only in a log."""
    client = '[clients.{}]\noutput = "out"\nsink = "{}"\n'
    text = DEPLOYMENT + client.format("rows", "sqlite:out.db,key=number txt")
    text += client.format("topic", "kafka:out,servers=127.0.0.1:9,key=numbr")
    text += client.format("good", "sqlite:good.db,key=number text")
    deployment = planned(tmp_path, text)
    with pytest.raises(DeploymentError, match=r"clients.rows.sink: .*no column 'txt'") as refused:
        check_columns(deployment, read_plan(deployment))
    assert "there are ['seq', 'stime', 'number', 'text']" in str(refused.value)
    assert "clients.topic.sink: " in str(refused.value)
    assert "'numbr'" in str(refused.value)
    assert "good" not in str(refused.value)


def test_a_wrong_output_is_blamed_on_the_deployment_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The network is fine, and is read by Spark here."""
    (tmp_path / "network.py").write_text(
        "from holdfast import Network\n"
        "network = Network('numbers')\n"
        "network.source('load', 'number bigint').output('numbers')\n"
    )
    text = DEPLOYMENT + '[clients.reader]\noutput = "nmbers"\n'
    (tmp_path / "deployment.toml").write_text(text)
    assert main(["up", str(tmp_path / "deployment.toml")]) == 1
    said = capsys.readouterr().err
    assert "deployment.toml: clients.reader: the network has no output 'nmbers'" in said
    assert "cannot be read" not in said


def test_a_mistake_in_the_network_is_named_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "network.py").write_text("from holdfast import Network\nnetwrk.source('load')\n")
    (tmp_path / "deployment.toml").write_text(DEPLOYMENT)
    assert main(["up", str(tmp_path / "deployment.toml")]) == 1
    said = capsys.readouterr().err
    assert "network.py cannot be read: line 2: NameError: name 'netwrk' is not defined" in said


def test_a_source_that_has_changed_is_refused_with_both_schemas(tmp_path: Path) -> None:
    deployment = planned(tmp_path, DEPLOYMENT)
    directory = deployment.data / "processes" / "entry-load" / "streams" / "load"
    # A column that is gained is one thing, another type is another.
    older = stream_schema(pa.schema([pa.field("number", pa.float64())]))
    with StreamLog.open(directory, older):
        pass
    now = "the network has number int64, text string; the log has number double"
    with pytest.raises(DeploymentError, match=now):
        check_logs(deployment, read_plan(deployment))


def test_who_stops_it_while_the_network_is_read_is_told_nothing_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    deployment = planned(tmp_path, DEPLOYMENT)
    (deployment.data / "plan.json").unlink()
    supervisor = Supervisor(deployment)
    thread = threading.Thread(target=supervisor.start)
    thread.start()
    wait(lambda: bool((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()), "Spark")
    supervisor.request_stop()
    thread.join(30.0)
    assert not thread.is_alive()
    supervisor.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_stopped_while_nodes_crash_it_does_not_say_all_up(tmp_path: Path) -> None:
    """The replica cannot start: its network's file defines none."""
    planned(tmp_path, DEPLOYMENT)
    said = tmp_path / "said.txt"
    with said.open("wb") as file:
        up = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", "up", str(tmp_path / "deployment.toml")],
            stdout=file,
            stderr=file,
        )
    try:
        wait(lambda: "main-1: exit code 1" in said.read_text(), "a crash")
        up.send_signal(signal.SIGTERM)
        assert up.wait(60.0) == 0
    finally:
        up.kill()
        up.wait()
    text = said.read_text()
    assert "SIGTERM: stopping" in text
    assert text.splitlines()[-1].endswith("stopped")
    assert "all up" not in text


def on_a_server(path: Path) -> Deployment:
    """The replica is on a server that is off: it is not waited for, and no Spark starts."""
    with contextlib.ExitStack() as held:
        port = free_port("127.0.0.1", held)
    text = DEPLOYMENT.replace("[fragments.main]", '[fragments.main]\nreplicas = ["east:1"]')
    text += f'[servers.east]\nlisten = "127.0.0.1:{port}"\n[security]\ntoken_file = "token"\n'
    (path / "token").write_text("secret")
    (path / "token").chmod(0o600)
    deployment = planned(path, text)
    known = {"nodes": {"main-1": ["127.0.0.1", 1]}, "metrics": {"main-1": ["east", 1]}}
    (deployment.data / "addresses.json").write_text(json.dumps(known))
    return deployment


def test_whoever_is_refused_stops_nothing_of_the_one_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []
    monkeypatch.setattr(RemoteServer, "stop", lambda server: stopped.append(server.name))
    deployment = on_a_server(tmp_path)
    (deployment.data / "processes.json").write_text(json.dumps({"main-1": {"pid": 17}}))
    with (deployment.data / "supervisor.pid").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        supervisor = Supervisor(deployment)
        with pytest.raises(SupervisorError, match="small is running already"):
            supervisor.start()
        assert not supervisor.stop()
    assert not stopped
    assert local_state(deployment) == {"main-1": {"pid": 17}}


def test_it_goes_on_in_the_background(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deployment = on_a_server(tmp_path)
    path = str(deployment.path)
    try:
        assert main(["up", "--detach", path]) == 0
        said = capsys.readouterr()
        assert "all up" in said.err
        pid = supervisor_pid(deployment)
        assert f"small runs in the background, supervised by process {pid};" in said.out
        running = local_state(deployment)
        assert any(each["pid"] for each in running.values())
        assert main(["up", "--detach", path]) == 1
        refused = capsys.readouterr().err
        assert f"small is running already, supervised by process {pid}" in refused
        assert "stopped" not in refused
        assert {name: each["pid"] for name, each in local_state(deployment).items()} == {
            name: each["pid"] for name, each in running.items()
        }
    finally:
        assert main(["down", path]) == 0
    assert supervisor_pid(deployment) is None
