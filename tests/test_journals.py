"""Benchmarks read what nodes and processes write down."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.journals import entries
from holdfast.nodes.journal import Journal


def test_lines_of_nodes_and_of_processes_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Journal("main-1").write("state", state="stable")
    Journal("main", "process").write("Spark is up")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "main.log").write_text(capsys.readouterr().err + '{"half')
    found = entries(tmp_path)
    assert [(each.node, each.event) for each in found] == [
        ("main-1", "state"),
        ("main", "Spark is up"),
    ]
    assert found[0].fields["state"] == "stable"
