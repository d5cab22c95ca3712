"""The reference pages say what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import deployment_file
from holdfast.connect import specs
from holdfast.deployment import load_deployment

ROOT = Path(__file__).parent.parent
DEPLOYMENT = """
network = "network.py"
files = ["more.py"]
[timing]
[spark]
[security]
[sources.load]
[fragments.main]
protection = "hybrid"
[fragments.main.standby]
[outputs.out]
delay = "5 seconds"
[clients.reader]
output = "out"
[bounds]
age = "1 day"
[collection]
network_cost = 1000
[servers.east]
listen = "127.0.0.1:4700"
"""
DISTANCES = """
network = "network.py"
chaos = true
[fragments.main]
[distances]
matrix = "latencies.txt"
"""


def test_the_api_page_is_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "api-reference"), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr


def test_every_key_of_a_deployment_file_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: dict[str, tuple[str, ...]] = {}
    told = deployment_file.DeploymentReader._known

    def note(self: Any, where: str, found: dict[str, Any], *names: str) -> None:
        known[where] = names
        told(self, where, found, *names)

    monkeypatch.setattr(deployment_file.DeploymentReader, "_known", note)
    for name in ("network.py", "more.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "deployment.toml").write_text(DEPLOYMENT)
    load_deployment(tmp_path / "deployment.toml")
    # Servers are as far away as they are.
    (tmp_path / "latencies.txt").write_text("here\nhere 0\n")
    (tmp_path / "distances.toml").write_text(DISTANCES)
    load_deployment(tmp_path / "distances.toml")
    sections = _sections((ROOT / "docs" / "reference" / "deployment.md").read_text())
    named = {"load": "NAME", "main": "NAME", "reader": "NAME", "east": "NAME", "out": "NAME"}
    assert len(known) == 13
    for where, names in known.items():
        title = ".".join(named.get(part, part) for part in where.split("."))
        keys = sections["The file" if where == "the file" else f"`[{title}]`"]
        assert set(keys) == set(names), where


def _sections(page: str) -> dict[str, list[str]]:
    """The keys in the first column of each section's table."""
    found: dict[str, list[str]] = {}
    for section in page.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        rows = re.findall(r"^\| (`[^|]*) \|", text.partition("\nSinks:")[0], flags=re.MULTILINE)
        # Those in quotes are keys of a table in this one, with another table on the page.
        found[title] = [key for row in rows for key in re.findall(r"`([^`\"]*)`", row)]
    return found


def test_every_kind_of_source_and_sink_is_described() -> None:
    page = (ROOT / "docs" / "reference" / "deployment.md").read_text()
    for kind in (*specs._SOURCES, *specs._SINKS):
        assert re.search(rf"`{kind}[:`]", page), kind
