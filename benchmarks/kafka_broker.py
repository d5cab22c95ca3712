"""A real Kafka broker on this machine, for tests and benchmarks: one process in KRaft mode.

It listens on loopback only, keeps its port and its data over a kill, and has a small heap.
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from holdfast.ports import free_port

_ROOT = Path(__file__).parent.parent
_HOST = "127.0.0.1"
# Generous: the machine may be busy with something else.
START_SECONDS = 120.0
CALL_SECONDS = 30.0
_JAVA_OPTIONS = (
    "-Xms64m",
    "-Xmx320m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dlog4j2.level=warn",
)


class Broker:
    """One broker with its own directory."""

    def __init__(self, directory: Path, settings: Mapping[str, Any] | None = None) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as held:
            self.port, controller = free_port(_HOST, held), free_port(_HOST, held)
        self.servers = f"{_HOST}:{self.port}"
        self._jars = _output(str(_ROOT / "scripts" / "kafka-jars"))
        self._java = f"{_java_home()}/bin/java"
        # One that lives on: what it was asked ends with it.
        self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = directory / "server.properties"
        chosen = {**_properties(self.port, controller, directory / "data"), **(settings or {})}
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in chosen.items()))
        self._format()

    def start(self) -> Broker:
        """Start it, and wait until it answers."""
        with (self._directory / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._properties)), stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"the broker ended; see {self._directory}/broker.log")
            try:
                self._admin.list_topics(timeout=1.0)
                return self
            except KafkaException:
                if time.monotonic() > deadline:
                    raise

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end; whoever does not is killed."""
        self._end(signal.SIGTERM)

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic, and wait until it can be written."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        made = self._admin.create_topics([NewTopic(topic, partitions, 1, config=config)])
        made[topic].result(CALL_SECONDS)
        self.until(lambda: len(self.partitions(topic)) == partitions)

    def delete(self, topic: str) -> None:
        """Remove a topic, and wait until it is gone."""
        self._admin.delete_topics([topic])[topic].result(CALL_SECONDS)
        self.until(lambda: not self.partitions(topic))

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        made = self._admin.create_partitions([NewPartitions(topic, partitions)])
        made[topic].result(CALL_SECONDS)
        self.until(lambda: len(self.partitions(topic)) == partitions)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records of a partition up to an offset, as retention would."""
        place = TopicPartition(topic, partition, offset)
        self._admin.delete_records([place])[place].result(CALL_SECONDS)

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic that have a leader."""
        found = self._admin.list_topics(timeout=CALL_SECONDS).topics.get(topic)
        if found is None or found.error is not None:
            return []
        return [number for number, each in found.partitions.items() if each.leader >= 0]

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something of the broker's; TimeoutError if it does not come about."""
        deadline = time.monotonic() + CALL_SECONDS
        while not is_so():
            if time.monotonic() > deadline:
                raise TimeoutError("the broker did not get there")
            time.sleep(0.05)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(CALL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(CALL_SECONDS)
        self._process = None

    def _format(self) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if cluster.startswith("-"):  # the tool would take it for an option
            cluster = f"A{cluster[1:]}"
        tool = ("kafka.tools.StorageTool", "format", "--standalone", "--cluster-id", cluster)
        subprocess.run(
            self._command(*tool, "--config", str(self._properties)),
            check=True,
            timeout=START_SECONDS,
            stdout=subprocess.DEVNULL,
        )

    def _command(self, *arguments: str) -> list[str]:
        return [self._java, *_JAVA_OPTIONS, "-cp", f"{self._jars}/*", *arguments]


def _properties(port: int, controller: int, data: Path) -> dict[str, Any]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.bootstrap.servers": f"{_HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{_HOST}:{port},CONTROLLER://{_HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{_HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data,
        # There is one broker, and nobody to wait for.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # Records have the times of tuples, which may be years ago.
        "log.retention.ms": -1,
        "auto.create.topics.enable": "false",
    }


def _java_home() -> str:
    return os.environ.get("JAVA_HOME") or _output(str(_ROOT / "scripts" / "find-java"))


def _output(*command: str) -> str:
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    return ran.stdout.strip()
