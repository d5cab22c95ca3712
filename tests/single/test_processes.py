"""Real ``holdfast run`` processes: killed, interrupted, and continued."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.connect.csv_source import read_csv
from holdfast.connect.jsonl_sink import write_jsonl
from holdfast.connect.jsonl_source import read_jsonl
from holdfast.single.reports import Observer
from holdfast.single.run import run
from tests.single.support import monitoring, rows, write_load, write_pings

SECONDS = 120
ROOT = Path(__file__).parents[2]
NETWORK = """
from tests.single.support import monitoring
network = monitoring()
"""


def start(directory: Path, *options: str) -> subprocess.Popen[str]:
    """``holdfast run`` in ``directory``, in many small advances with a checkpoint after each."""
    (directory / "net.py").write_text(NETWORK)
    command = [
        *(sys.executable, "-m", "holdfast.cli", "run", "net.py", "--spark-master", "local[1]"),
        *("--source", "load=csv:load.csv,lateness=5 s,block_bytes=3000"),
        *("--source", "pings=jsonl:pings.jsonl,block_bytes=1000"),
        *("--output", "busy=jsonl:busy.jsonl", "--output", "both=jsonl:both.jsonl"),
        *("--advance-tuples", "120", "--state", "state", "--checkpoint-interval", "300 ms"),
        *options,
    ]
    return subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_until_written(process: subprocess.Popen[str], path: Path, size: int) -> None:
    """Until the output has grown past ``size`` bytes."""
    deadline = time.monotonic() + 120
    while not (path.exists() and path.stat().st_size > size):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing was written"
        time.sleep(0.02)


def end(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for a process to end in order; what it printed."""
    out, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    return out + errors


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_load(tmp_path / "load.csv", SECONDS)
    write_pings(tmp_path / "pings.jsonl", SECONDS)
    return tmp_path


@pytest.mark.thorough
def test_killed_and_interrupted_runs_give_the_output_of_one(
    directory: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    output = directory / "both.jsonl"
    killed = start(directory)
    wait_until_written(killed, output, 4_000)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert (directory / "state" / "manifest.json").exists()
    at_kill = output.stat().st_size

    interrupted = start(directory)
    wait_until_written(interrupted, output, at_kill + 4_000)
    os.killpg(interrupted.pid, signal.SIGINT)
    said = end(interrupted)
    assert "going on where the last run stopped" in said
    assert "monitoring: stopped after" in said

    whole = tmp_path_factory.mktemp("whole")
    for place in (directory, whole):  # here rather than in processes: a Spark driver is slow
        summary = run(
            monitoring(spark),
            {
                "load": read_csv(directory / "load.csv", lateness="5 s"),
                "pings": read_jsonl(directory / "pings.jsonl"),
            },
            {name: write_jsonl(place / f"{name}.jsonl") for name in ("busy", "both")},
            state=place / "state",
            observer=Observer(),
        )
        assert summary.finished
    for name in ("busy.jsonl", "both.jsonl", "state/dead-letters.jsonl"):
        assert (directory / name).read_bytes() == (whole / name).read_bytes()
    assert len(rows(whole / "both.jsonl")) > SECONDS
