"""``holdfast run`` between two topics, on the command line: killed, it leaves every record once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.kafka_broker import Broker
from benchmarks.kafka_pipeline import committed_records
from tests.servers.support import SECONDS, records, send, topic_name

pytestmark = [pytest.mark.thorough]

COUNT = 20_000
NETWORK = """
from holdfast import Network

network = Network("numbers", bucket="1 second")
load = network.source("load", "at timestamp, number bigint", stime="at")
load.filter("number % 2 = 0").output("even")
"""


def reading(number: int) -> dict[str, object]:
    at = f"2024-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    return {"at": at, "number": number}


def start(
    directory: Path, broker: Broker, source: str, sink: str, follow: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "holdfast.cli", "run", "network.py"),
            *("--spark-master", "local[1]", "--advance-tuples", "50", "--state", "state"),
            *("--source", f"load=kafka:{source},servers={broker.servers},follow={follow}"),
            *("--output", f"even=kafka:{sink},servers={broker.servers},key=number"),
            *("--checkpoint-interval", "200 ms"),
        ],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_run_that_is_killed_leaves_every_record_once(broker: Broker, tmp_path: Path) -> None:
    source, sink = topic_name("run-in"), topic_name("run-out")
    broker.create(source, 3)
    broker.create(sink, 2)
    half = COUNT // 2
    for partition in range(3):
        send(broker, source, map(reading, range(partition, half, 3)), partition)
    (tmp_path / "network.py").write_text(NETWORK)
    first = start(tmp_path, broker, source, sink, follow="true")
    deadline = time.monotonic() + SECONDS
    while not committed_records(broker, sink):
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    for partition in range(3):
        send(broker, source, map(reading, range(half + partition, COUNT, 3)), partition)
    second = start(tmp_path, broker, source, sink, follow="false")
    out, errors = second.communicate(timeout=SECONDS)
    assert second.returncode == 0, (out, errors)
    found = records(broker, sink, COUNT // 2)
    ids = sorted(int(dict(each.headers())["holdfast-id"]) for each in found)
    assert ids == list(range(COUNT // 2))
    numbers = sorted(json.loads(each.value())["number"] for each in found)
    assert numbers == list(range(0, COUNT, 2))
    assert len(committed_records(broker, sink)) == COUNT // 2
