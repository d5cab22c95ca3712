"""A deployment on a real Spark standalone master and worker gives the same bytes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from holdfast.cluster.networks import load_network
from holdfast.cluster.planning import plan_of
from holdfast.deployment import load_deployment
from holdfast.plans.plan import write_plan
from holdfast.producer import Producer
from holdfast.testing.deployed import expected_file, supervised, wait_for_lines
from tests.processes.test_kill import EXAMPLE, readings

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


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


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """A master and a worker; the master's URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    told = ["--host", "127.0.0.1", "--webui-port", "0"]
    room = ["-c", "2", "-m", "1g", "-d", str(directory / "work"), url]
    (directory / "work").mkdir()
    with running(directory, f"{deploy}.master.Master", *told, "--port", str(port)):
        wait_for_port(port)
        with running(directory, f"{deploy}.worker.Worker", *told, *room):
            yield url


@pytest.mark.thorough
@pytest.mark.timeout(240)
def test_a_deployment_on_a_cluster_gives_the_same_bytes(
    tmp_path: Path, spark: SparkSession
) -> None:
    shutil.copy(EXAMPLE / "network.py", tmp_path / "network.py")
    with cluster(tmp_path) as master:
        text = (EXAMPLE / "deployment.toml").read_text()
        text = text.replace("[sources.load]", "[sources.load]\nkeep = true")
        config = '{ "spark.executor.memory" = "512m" }'
        text += f'\n[spark]\nmaster = "{master}"\nconfig = {config}\n'
        (tmp_path / "deployment.toml").write_text(text)
        deployment = load_deployment(tmp_path / "deployment.toml")
        network = load_network(deployment.network, "local[2]", {})
        write_plan(deployment, plan_of(network))
        with supervised(deployment) as supervisor:
            with Producer.of(deployment.path, "load", name="test") as producer:
                for first in range(0, 3_000, 1_000):
                    producer.send(readings(first, 1_000))
                    producer.flush()
                    time.sleep(0.5)
            expected = expected_file(network, deployment, "busy")
            found = deployment.data / "busy.jsonl"
            wait_for_lines(supervisor, found, expected.count("\n"), 120.0)
        assert "Registered app" in (tmp_path / "Master.log").read_text()
    assert found.read_text() == expected != ""
