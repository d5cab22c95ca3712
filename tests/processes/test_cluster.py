"""A fragment's jobs on a real Spark standalone master and worker give the same bytes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from holdfast.fragments import stream_schema_of
from holdfast.frames import TIME
from holdfast.network import Network
from holdfast.runtime.networks import load_network
from holdfast.testing.undisturbed import undisturbed

ROOT = Path(__file__).parents[2]
NETWORK = ROOT / "examples" / "deployment" / "network.py"
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


def results(network: Network) -> pa.Table:
    times = np.arange(0, 5_000_000, 1_000)
    rows = {
        "stime": pa.array(times).cast(TIME),
        "tmax": pa.array(times).cast(TIME),
        "number": np.arange(5_000),
        "server": np.arange(5_000) % 4,
        "cpu": np.sin(times),
    }
    load = pa.table(rows, schema=stream_schema_of(network.sources["load"]))
    return undisturbed(network, {"load": load})["busy"].combine_chunks()


@contextmanager
def running(directory: Path, name: str, *arguments: str) -> Iterator[None]:
    """A Spark daemon of the installed package."""
    with (directory / f"{name.rpartition('.')[2]}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(SPARK_CLASS), name, *arguments],
            cwd=directory,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.kill()
        process.wait(10.0)


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 60.0
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.timeout(240)
def test_a_cluster_gives_the_same_bytes(tmp_path: Path, spark: SparkSession) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    told = ["--host", "127.0.0.1", "--webui-port", "0"]
    code = (
        "import sys, pyarrow as pa; from pathlib import Path\n"
        "from tests.processes.test_cluster import NETWORK, load_network, results\n"
        "network = load_network(NETWORK, sys.argv[1], {'spark.executor.memory': '512m'})\n"
        "assert network.spark.sparkContext.master == sys.argv[1]\n"
        "found = results(network)\n"
        "with pa.ipc.new_file(sys.argv[2], found.schema) as writer: writer.write_table(found)\n"
    )
    found = tmp_path / "found.arrow"
    with running(tmp_path, f"{deploy}.master.Master", *told, "--port", str(port)):
        wait_for_port(port)
        (tmp_path / "work").mkdir()
        room = ["-c", "2", "-m", "1g", "-d", str(tmp_path / "work"), master]
        with running(tmp_path, f"{deploy}.worker.Worker", *told, *room):
            subprocess.run(
                [sys.executable, "-c", code, master, str(found)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                check=True,
                timeout=180,
                capture_output=True,
            )
    expected = results(load_network(NETWORK, "local[2]", {}))
    with pa.OSFile(str(found)) as source:
        assert pa.ipc.open_file(source).read_all().combine_chunks().equals(expected)
    assert expected.num_rows == 12
