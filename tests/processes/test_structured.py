"""Structured Streaming on both sides of a deployment, killed again and again: each row once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.cluster.networks import load_network
from holdfast.cluster.planning import plan_of
from holdfast.deployment import load_deployment
from holdfast.plans.plan import write_plan
from holdfast.testing.deployed import supervised

NETWORK = """
import holdfast

network = holdfast.Network("numbers", bucket="200 ms")
load = network.source("load", "number long, text string")
load.filter("number % 2 = 0").output("even")
"""
DEPLOYMENT = """
network = "network.py"
[timing]
delay = "4 seconds"
[spark.config]
"spark.driver.memory" = "512m"
[sources.load]
[clients.spark]
output = "even"
[fragments.main]
protection = "none"
"""
FILES, ROWS = 30, 40


def write_file(directory: Path, number: int) -> None:
    """A file of rows, there all at once."""
    rows = range(number * ROWS, (number + 1) * ROWS)
    lines = "".join(json.dumps({"number": each, "text": f"t{each}"}) + "\n" for each in rows)
    hidden = directory / f".{number}"
    hidden.write_text(lines)
    hidden.rename(directory / f"{number:04}.json")


class Queries:
    """The queries in a process of their own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = (directory / "queries.log").open("ab")
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.processes.structured_query", str(self._directory)]
        self._process = subprocess.Popen(
            command, stdout=self._log, stderr=self._log, start_new_session=True
        )

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def close(self) -> None:
        self.kill()
        self._log.close()

    def check(self) -> None:
        if self._process.poll() is not None:
            lines = (self._directory / "queries.log").read_text().splitlines()
            said = [line for line in lines if not line.lstrip().startswith("at ")]
            raise AssertionError("\n".join(said)[-6000:])


def committed(spark: SparkSession, directory: Path) -> list[tuple[int, int]]:
    """What the reading query has committed: ids and numbers."""
    if not list((directory / "found" / "_spark_metadata").glob("[0-9]*")):
        return []
    found = spark.read.parquet(str(directory / "found")).select("seq", "number", "text").collect()
    assert all(row.text == f"t{row.number}" for row in found)
    return sorted((row.seq, row.number) for row in found)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_each_row_goes_in_and_comes_out_once_whenever_the_queries_are_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "network.py").write_text(NETWORK)
    (tmp_path / "deployment.toml").write_text(DEPLOYMENT)
    deployment = load_deployment(tmp_path / "deployment.toml")
    write_plan(deployment, plan_of(load_network(tmp_path / "network.py", "local[1]", {})))
    expected = [number for number in range(FILES * ROWS) if number % 2 == 0]
    with supervised(deployment), contextlib.closing(Queries(tmp_path)) as queries:
        for number in range(FILES):
            write_file(tmp_path / "files", number)
            if number % 10 == 9:
                # Once something of these files has come out, and more is on its way.
                wait(spark, tmp_path, queries, (number - 5) * ROWS // 2)
                queries.kill()
                queries.start()
        wait(spark, tmp_path, queries, len(expected))
    found = committed(spark, tmp_path)
    assert [seq for seq, _ in found] == list(range(len(expected)))
    # In which order Spark takes the files is its own affair.
    assert sorted(number for _, number in found) == expected


def wait(spark: SparkSession, directory: Path, queries: Queries, count: int) -> None:
    deadline = time.monotonic() + 240
    while len(found := committed(spark, directory)) < count:
        queries.check()
        if time.monotonic() > deadline:
            log = (directory / "queries.log").read_text()[-2000:]
            raise TimeoutError(f"{len(found)} of {count} rows came out\n{log}")
        time.sleep(0.5)
