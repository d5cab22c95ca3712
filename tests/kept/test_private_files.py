"""What a node, a run and a supervisor keep is nobody else's to read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cluster.children import Children, log_path
from holdfast.kept.state_directory import StateDirectory
from holdfast.producer import Producer
from tests.flight.nodes import entry_point, location, numbers
from tests.processes.planned import planned

DEPLOYMENT = """
network = "network.py"
[sources.load]
[fragments.main]
"""


@pytest.fixture(autouse=True)
def generous() -> Iterator[None]:
    """An umask that keeps nothing from anybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(directory: Path) -> list[str]:
    """Everything at and below a directory that somebody else may read, write or enter."""
    return [
        f"{stat.filemode(path.stat().st_mode)} {path}"
        for path in (directory, *directory.rglob("*"))
        if path.stat().st_mode & 0o077
    ]


def test_the_files_of_a_node_are_private(tmp_path: Path) -> None:
    directory = tmp_path / "entry"
    directory.mkdir(mode=0o755)  # as an earlier version made it
    with entry_point(directory) as node:
        with Producer("load", location(node), name="p") as producer:
            producer.send(numbers(0, 10))
        node.links.cut("somebody")
        assert any(directory.rglob("*.log")) or any(directory.rglob("streams/*/*"))
        assert open_to_others(directory) == []


def test_a_state_directory_is_private(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.write_manifest({"network": [], "finished": None})
    state.close()
    assert open_to_others(tmp_path / "state") == []


def test_what_processes_say_is_private(tmp_path: Path) -> None:
    deployment = planned(tmp_path, DEPLOYMENT)
    children = Children(deployment, ["entry-load"], lambda text: None)
    children.start()
    children.stop()
    assert log_path(deployment, "entry-load").exists()
    assert open_to_others(deployment.data) == []
