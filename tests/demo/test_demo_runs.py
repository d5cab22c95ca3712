"""The demonstration as a user starts it: real processes, a cut, a kill -9."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.alone, pytest.mark.thorough]


def test_the_demo_runs_without_a_terminal(tmp_path: Path) -> None:
    options = ["--seconds", "12", "--servers", "6", "--spark-master", "local[2]"]
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "demo", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for said in (
        "Spark starts, to read the query",
        "main-1: up",
        "asia is cut off for 4 s",
        "tentative after",
        "corrected had",
        "kill -9 main-",
        "is recovering",
        "the processes stop",
        "a batch job computes the same from the logs",
        "Identical, tuple for tuple: the client's",
        "drawn in holdfast-demo.png",
    ):
        assert said in ran.stdout, ran.stdout
    assert (tmp_path / "holdfast-demo.png").read_bytes().startswith(b"\x89PNG")
    assert ran.stderr == ""
