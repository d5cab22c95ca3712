"""``holdfast run`` between two topics, on the command line: killed, it leaves every record once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from benchmarks.kafka_broker import Broker
from benchmarks.kafka_pipeline import committed_records
from holdfast import Network, read_kafka, window, write_jsonl
from holdfast.single.reports import Observer
from holdfast.single.run import run as run_here
from tests.servers.support import SECONDS, records, send, topic_name

pytestmark = [pytest.mark.thorough]

LIVES = 2
PORTION = 200
NETWORK = """
from holdfast import Network

network = Network("numbers", bucket="1 second")
load = network.source("load", "at timestamp, number bigint", stime="at")
load.filter("number % 2 = 0").output("even")
"""
Run = subprocess.Popen[str]
Start = Callable[[str], Run]


def reading(number: int) -> dict[str, object]:
    at = f"2024-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    return {"at": at, "number": number}


def send_portion(broker: Broker, topic: str, number: int) -> None:
    """The readings of so many seconds, one after the other in each of three partitions."""
    first = number * PORTION
    for partition in range(3):
        mine = [each for each in range(first, first + PORTION) if each % 3 == partition]
        send(broker, topic, map(reading, mine), partition)


def kill(run: Run) -> None:
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()


@pytest.fixture
def topics(broker: Broker) -> tuple[str, str]:
    source, sink = topic_name("run-in"), topic_name("run-out")
    broker.create(source, 3)
    broker.create(sink, 2)
    return source, sink


@pytest.fixture
def start(broker: Broker, topics: tuple[str, str], tmp_path: Path) -> Iterator[Start]:
    """Starts a run that follows its source, or not; what is left of it goes with the test."""
    source, sink = topics
    (tmp_path / "network.py").write_text(NETWORK)
    runs: list[Run] = []

    def started(follow: str) -> Run:
        # No partition is idle on a busy machine: what is late would depend on the machine.
        reads = f"kafka:{source},servers={broker.servers},follow={follow},idle_after=1 hour"
        run = subprocess.Popen(
            [
                *(sys.executable, "-m", "holdfast.cli", "run", "network.py"),
                *("--spark-master", "local[1]", "--advance-tuples", "50", "--state", "state"),
                *("--source", f"load={reads}", "--checkpoint-interval", "200 ms"),
                *("--output", f"even=kafka:{sink},servers={broker.servers},key=number"),
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        runs.append(run)
        return run

    yield started
    for run in runs:
        if run.poll() is None:
            kill(run)


def test_a_run_that_is_killed_leaves_every_record_once(
    broker: Broker, topics: tuple[str, str], start: Start
) -> None:
    source, sink = topics
    chance, sent = Random(1), 0
    for _ in range(LIVES):
        before = len(committed_records(broker, sink))
        run = start("true")
        send_portion(broker, source, sent)
        deadline = time.monotonic() + SECONDS
        while len(committed_records(broker, sink)) <= before:
            assert run.poll() is None, run.communicate()
            assert time.monotonic() < deadline
        # It has something to do when it is killed, and there is more after the last kill.
        send_portion(broker, source, sent + 1)
        time.sleep(chance.uniform(0.0, 0.5))
        kill(run)
        sent += 2
    send_portion(broker, source, sent)
    last = start("false")
    out, errors = last.communicate(timeout=SECONDS)
    assert last.returncode == 0, (out, errors)
    count = (sent + 1) * PORTION // 2
    found = sorted(
        (int(dict(each.headers())["holdfast-id"]), json.loads(each.value())["number"])
        for each in records(broker, sink, count)
    )
    assert found == [(number, 2 * number) for number in range(count)]


def test_a_topic_that_grows_after_the_end_gives_the_output_of_one_run(
    broker: Broker, topics: tuple[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    source, _ = topics
    network = Network("counts", bucket="1 second", spark=spark)
    load = network.source("load", "at timestamp, number bigint", stime="at")
    load.groupBy(window("30 seconds")).agg("sum(number) AS total").output("counts")

    def run_in(directory: Path) -> bytes:
        directory.mkdir(exist_ok=True)
        summary = run_here(
            network,
            {"load": read_kafka(source, servers=broker.servers, follow=False, lateness=0)},
            {"counts": write_jsonl(directory / "counts.jsonl")},
            state=directory / "state",
            observer=Observer(),
        )
        assert summary.finished
        assert summary.dead_letters == 0
        return (directory / "counts.jsonl").read_bytes()

    send_portion(broker, source, 0)
    half = run_in(tmp_path / "pieces")
    assert run_in(tmp_path / "pieces") == half
    send_portion(broker, source, 1)
    whole = run_in(tmp_path / "whole")
    assert len(whole.splitlines()) == 2 * PORTION // 30 + 1
    assert run_in(tmp_path / "pieces") == whole
