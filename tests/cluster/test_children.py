"""What looks after processes goes on when there is no room, and says so once."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from holdfast.cluster.children import REMOVED_CODE, Children, log_path, supervisor_log
from holdfast.cluster.process_logs import rotate
from holdfast.cluster.server import Server
from holdfast.cluster.supervisor import end_process
from holdfast.deployment import Deployment, SecuritySpec, load_deployment
from holdfast.nodes.journal import Journal

DEPLOYMENT = """
name = "small"
network = "network.py"
[sources.load]
[fragments.main]
"""


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """Its processes do nothing, so they start at once."""
    (tmp_path / "network.py").write_text("")
    (tmp_path / "deployment.toml").write_text(DEPLOYMENT)
    idle = tmp_path / "idle"
    idle.write_text("#!/bin/sh\nexec sleep 600\n")
    idle.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(idle))
    return load_deployment(tmp_path / "deployment.toml")


def no_room(data: Path) -> Path:
    """The state cannot be written until this is removed."""
    blocking = data / ".processes.json.part"
    blocking.mkdir(parents=True)
    return blocking


def wait(children: Children, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not until():
        assert time.monotonic() < deadline
        children.watch()
        time.sleep(0.02)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def children(deployment: Deployment, told: list[str]) -> Iterator[Children]:
    made = Children(deployment, ["entry-load"], told.append)
    try:
        yield made
    finally:
        made.stop()


def test_no_room_for_the_state_stops_no_process(
    deployment: Deployment, children: Children, told: list[str]
) -> None:
    blocking = no_room(deployment.data)
    children.start()
    first = children["entry-load"]
    assert first.popen is not None
    first.popen.kill()
    wait(children, lambda: children.states()["entry-load"]["restarts"] == 1)
    assert [each for each in told if "processes.json cannot be written" in each] == told[:1]
    blocking.rmdir()
    path = deployment.data / "processes.json"
    wait(children, path.exists)
    assert json.loads(path.read_text())["entry-load"]["pid"] == children["entry-load"].pid
    assert told[-1].endswith("processes.json is written again")


def test_a_process_that_cannot_be_started_is_tried_again(
    deployment: Deployment, children: Children, told: list[str]
) -> None:
    blocking = deployment.data / "logs" / "entry-load.log"
    blocking.mkdir(parents=True)
    children.start()
    wait(children, lambda: children["entry-load"].pause > 0.2)
    assert len(told) == 1
    assert "entry-load: it cannot be started: " in told[0]
    blocking.rmdir()
    wait(children, lambda: children["entry-load"].pid is not None)


def test_a_process_that_takes_part_no_longer_is_not_started_again(
    deployment: Deployment, told: list[str], tmp_path: Path
) -> None:
    (tmp_path / "idle").write_text(f"#!/bin/sh\nexit {REMOVED_CODE}\n")
    children = Children(deployment, ["entry-load"], told.append)
    children.start()
    try:
        wait(children, lambda: bool(told))
        assert told[0].endswith("; is not started again")
        for _ in range(10):
            children.watch()
            time.sleep(0.05)
        assert children.states()["entry-load"]["restarts"] == 0
    finally:
        children.stop()


# Its child is to it what a JVM is to a replica: needed until all is written, and gone with it.
WITH_JVM = """#!/bin/sh
trap 'sleep 0.2; cp jvm found; exit 0' TERM
(trap 'echo ended > jvm; exit 0' TERM; echo runs > jvm; while kill -0 $$; do sleep 0.02; done) &
while :; do sleep 0.02; done
"""


@pytest.mark.parametrize("server", [False, True], ids=["here", "on a server"])
def test_a_process_that_is_to_start_again_ends_before_its_jvm(
    deployment: Deployment, children: Children, told: list[str], tmp_path: Path, server: bool
) -> None:
    (tmp_path / "idle").write_text(WITH_JVM)
    children.start()
    wait(children, (tmp_path / "jvm").exists)
    pid = children["entry-load"].pid
    end = partial(children.end if server else partial(end_process, deployment), "entry-load")
    assert end() == pid
    wait(children, lambda: children.states()["entry-load"]["restarts"] == 1)
    assert "exit code 0" in told[0]
    assert (tmp_path / "found").read_text() == "runs\n"


def test_a_process_that_is_added_is_started_and_looked_after(
    deployment: Deployment, children: Children
) -> None:
    children.start()
    assert children.adopt(deployment, ["entry-load", "main-1"]) == ["main-1"]
    added = children["main-1"]
    assert added.popen is not None
    added.popen.kill()
    wait(children, lambda: children.states()["main-1"]["restarts"] == 1)


def test_a_server_without_room_goes_on(deployment: Deployment, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o600)
    hosted = tmp_path / "server" / "small"
    blocking = no_room(hosted / "data")
    (hosted / "network.py").write_text("")
    tables = {"network": "network.py", "sources": {"load": {}}, "fragments": {"main": {}}}
    (hosted / "deployment.json").write_text(json.dumps(tables))
    (hosted / "hosted.json").write_text(json.dumps(["entry-load"]))
    server = Server("127.0.0.1", 0, tmp_path / "server", SecuritySpec(token_file=token))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 30.0
        while "small" not in server._hosted:
            assert time.monotonic() < deadline
            assert thread.is_alive()
            time.sleep(0.02)
        assert server._hosted["small"]["entry-load"].pid is not None
        blocking.rmdir()
        while not (hosted / "data" / "processes.json").exists():
            assert time.monotonic() < deadline
            assert thread.is_alive()
            time.sleep(0.02)
    finally:
        server.request_stop()
        thread.join(30.0)
    assert not thread.is_alive()


@pytest.mark.parametrize("line", ["{}", "{}----------", "----------{}", "-- {}{{half"])
def test_why_a_process_ended_is_told_though_a_library_wrote_into_the_line(
    deployment: Deployment, children: Children, told: list[str], tmp_path: Path, line: str
) -> None:
    said = json.dumps({"time": "now", "event": "fatal", "problem": "the JVM is gone"})
    log = log_path(deployment, "entry-load")
    ends = tmp_path / "idle"
    ends.write_text(f"#!/bin/sh\necho '{line.format(said)}'\necho Traceback\nexit 70\n")
    children.start()
    wait(children, lambda: any("exit code 70" in text for text in told))
    assert any("(the JVM is gone)" in text for text in told), (told, log.read_text())


def test_a_line_of_the_journal_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Stream:
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

        def flush(self) -> None:
            pass

    monkeypatch.setattr(sys, "stderr", Stream())
    Journal("main-1").write("started", port=1)
    (line,) = written
    assert line.endswith("\n")
    assert json.loads(line)["event"] == "started"


def test_what_a_supervisor_says_in_the_background_has_a_bound_too(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cluster.children.rotate", partial(rotate, longest_bytes=19_999))
    children.start()
    path = supervisor_log(children.deployment)
    path.write_bytes(b"old\n" * 5_000)
    children.watch()
    assert path.with_name("supervisor.log.1").stat().st_size > 15_000
    assert path.stat().st_blocks * 512 <= 8_192


def test_hundreds_of_restarts_leave_no_descriptor_and_no_thread_open(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = tmp_path / "quick"
    quick.write_text('#!/bin/sh\ncase "$2" in *guardian) exec cat >/dev/null;; esac\nexit 1\n')
    quick.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(quick))
    monkeypatch.setattr("holdfast.cluster.children.FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("holdfast.cluster.children.LONGEST_PAUSE_SECONDS", 0.0)
    children = Children(deployment, ["entry-load"], lambda text: None)
    children.start()
    try:
        descriptors, threads = [], []
        deadline = time.monotonic() + 60.0
        while children["entry-load"].restarts < 200:
            assert time.monotonic() < deadline
            children.watch()
            if children["entry-load"].restarts >= 20:
                descriptors.append(len(list(Path("/proc/self/fd").iterdir())))
                threads.append(threading.active_count())
        # One more is that of a start that is under way.
        assert max(descriptors) <= descriptors[0] + 1
        assert max(threads) <= threads[0]
    finally:
        children.stop()
