"""From a Kafka topic through a deployment into Kafka, PostgreSQL, Delta and Iceberg, with kills.

What was committed in each sink is compared with the oracle: one batch over what the entry point
logged; and what it logged with what was sent, record by record.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka as kafka
import deltalake
import psycopg
import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.java_servers import StoreServer
from benchmarks.kafka_broker import Broker
from benchmarks.postgres_server import PostgresServer
from holdfast.cluster.networks import load_network
from holdfast.cluster.supervisor import Supervisor
from holdfast.deployment import load_deployment
from holdfast.testing.deployed import Killer, supervised
from holdfast.testing.undisturbed import logged_tuples, undisturbed

NETWORK = """
from pyspark.sql import functions as F

from holdfast import Network, window

network = Network("pipeline", bucket="{bucket}", partitions=2)
readings = network.source("readings", "number bigint, made bigint, server string")
readings.filter("number >= 0").output("passed")
readings.distinct("number", window=window("10 seconds")).output("unique")
(
    readings.groupBy(window("1 second"), "server")
    .agg(F.count("*").alias("readings"), F.sum("number").alias("total"))
    .output("counts")
)
"""
COUNTED = ("server", "readings", "total")
WAIT_SECONDS = 300.0


@dataclass
class Servers:
    """What the pipeline reads from and writes to."""

    directory: Path
    broker: Broker
    postgres: PostgresServer | None = None
    store: StoreServer | None = None

    @property
    def iceberg(self) -> dict[str, str]:
        place = self.directory.absolute()
        return {"uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}/warehouse"}

    @property
    def delta(self) -> Path:
        return self.directory.absolute() / "delta"

    def sinks(self) -> dict[str, tuple[str, str]]:
        """By client, its output and its sink."""
        at = f"servers={self.broker.servers}"
        found = {
            "passed": ("passed", f"kafka:passed,{at},commit_interval=50 ms"),
            "unique": ("unique", f"kafka:unique,{at},commit_interval=50 ms"),
        }
        if self.postgres is None:
            return found
        if self.store is not None:
            address = self.store.address("counts")
            found["objects"] = ("counts", f"parquet:{address},commit_interval=1 second")
        catalog, warehouse = self.iceberg["uri"], self.iceberg["warehouse"]
        return found | {
            "counts": ("counts", f"kafka:counts,{at},key=server"),
            "rows": ("counts", f"postgres:{self.postgres.connection},table=counts"),
            "delta": ("counts", f"delta:{self.delta},commit_interval=1 second"),
            "iceberg": (
                "counts",
                f"iceberg:shop.counts,catalog={catalog},warehouse={warehouse},"
                f"commit_interval=1 second",
            ),
        }


@contextmanager
def pipeline(servers: Servers, bucket: str = "50 ms") -> Iterator[Supervisor]:
    """The deployment, running and watched."""
    broker, directory = servers.broker, servers.directory
    sinks = servers.sinks()
    broker.create("readings", 2)
    for topic in ("passed", "unique", "counts"):
        # The broker's clock says when it had a record, before its transaction was committed.
        broker.create(topic, 2, message_timestamp_type="LogAppendTime")
    (directory / "warehouse").mkdir(parents=True, exist_ok=True)
    (directory / "network.py").write_text(NETWORK.format(bucket=bucket))
    clients = "".join(
        f"[clients.{name}]\noutput = {json.dumps(output)}\nsink = {json.dumps(sink)}\n\n"
        for name, (output, sink) in sinks.items()
    )
    (directory / "deployment.toml").write_text(
        f'network = "network.py"\nchaos = true\n\n[timing]\ndelay = "10 seconds"\n\n'
        f'[sources.readings]\nfrom = "kafka:readings,servers={broker.servers}"\nkeep = true\n\n'
        f"[fragments.main]\n\n{clients}"
    )
    with supervised(load_deployment(directory / "deployment.toml")) as supervisor:
        yield supervisor


class Sender:
    """Sends numbered records at a rate, by the clock, until it is stopped."""

    def __init__(self, broker: Broker, per_second: int, value: Callable[[int], bytes]) -> None:
        self.sent = 0
        self._per_turn = max(1, per_second // 100)
        self._value = value
        self._stopping = threading.Event()
        self._failed: list[Any] = []
        # It goes on over a broker that is away, each record once.
        self._producer = kafka.Producer(
            {
                "bootstrap.servers": broker.servers,
                "enable.idempotence": True,
                "delivery.timeout.ms": 600_000,
                "linger.ms": 2,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """How many records there are, once all of them are durable."""
        self._stopping.set()
        self._thread.join(WAIT_SECONDS)
        left = self._producer.flush(WAIT_SECONDS)
        if left or self._failed:
            raise RuntimeError(f"{left} records were not sent, {len(self._failed)} failed")
        return self.sent

    def _run(self) -> None:
        start, turn = time.monotonic(), 0
        while not self._stopping.is_set():
            for _ in range(self._per_turn):
                self._send()
            turn += 1
            self._producer.poll(0)
            time.sleep(max(0.0, start + turn / 100 - time.monotonic()))

    def _send(self) -> None:
        while True:
            try:
                self._producer.produce(
                    "readings",
                    self._value(self.sent),
                    partition=self.sent % 2,
                    on_delivery=lambda error, _: self._failed.append(error) if error else None,
                )
                self.sent += 1
                return
            except BufferError:
                self._producer.poll(0.1)


def reading(number: int) -> bytes:
    made = time.time_ns() // 1000
    return b'{"number": %d, "made": %d, "server": "s%d"}' % (number, made, number % 4)


class Blows:
    """Kills the processes of a deployment and its broker, in a random order."""

    def __init__(self, supervisor: Supervisor, broker: Broker, seed: int) -> None:
        self._killer = Killer(supervisor, seed)
        self._broker = broker
        self._random = Random(seed)

    def strike(self, kills: int, clients: list[str], pause_s: tuple[float, float]) -> int:
        """One of each kind in turn; how many there were."""
        kinds = ["entry-readings", "main-1", "client", "broker"]
        for number in range(kills):
            kind = kinds[number % len(kinds)]
            if kind == "broker":
                time.sleep(self._random.uniform(*pause_s))
                self._broker.kill()
                self._broker.start()
            else:
                name = self._random.choice(clients) if kind == "client" else kind
                self._killer.kill({name: 1}, pause_s)
        return kills


@dataclass
class Verdict:
    """What differs from the oracle, by sink."""

    lost: int = 0
    doubled: int = 0
    differ: list[str] = field(default_factory=list)

    def compare(self, where: str, found: list[Any], expected: list[Any]) -> None:
        have, want = Counter(found), Counter(expected)
        self.lost += sum((want - have).values())
        self.doubled += sum((have - want).values())
        if have != want:
            self.differ.append(
                f"{where}: {len(found)} of {len(expected)}, lacks {[*(want - have)][:3]}, has "
                f"{[*(have - want)][:3]} too much"
            )


def judge(servers: Servers, sent: int) -> Verdict:
    """Wait until every sink has what the oracle has, and compare."""
    deployment = load_deployment(servers.directory / "deployment.toml")
    place = deployment.data / "processes" / "entry-readings" / "streams" / "readings"
    wait_until(lambda: logged_tuples(place).num_rows >= sent, "the records in the log")
    logged = logged_tuples(place)
    verdict = Verdict()
    verdict.compare("the log", logged["number"].to_pylist(), list(range(sent)))
    network = load_network(servers.directory / "network.py", "local[2]", {})
    expected = {
        name: _expected(name, table)
        for name, table in undisturbed(network, {"readings": logged}).items()
    }
    for client, (output, _) in servers.sinks().items():
        found = _wait_for(partial(_holdings, servers, client, output), expected[output], client)
        verdict.compare(client, found, expected[output])
    return verdict


def _holdings(servers: Servers, client: str, output: str) -> list[Any]:
    """What the sink of a client has now."""
    match client:
        case "rows":
            return _rows(servers)
        case "delta":
            return _delta(servers)
        case "iceberg":
            return _iceberg(servers)
        case "objects":
            return _objects(servers)
        case _:
            return _records(servers.broker, output)


def _wait_for(read: Callable[[], list[Any]], expected: list[Any], what: str) -> list[Any]:
    wait_until(lambda: len(read()) >= len(expected), f"{what} to have {len(expected)}")
    return read()


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {WAIT_SECONDS:g} s for {what}")
        time.sleep(0.5)


def _expected(name: str, table: pa.Table) -> list[Any]:
    names = COUNTED if name == "counts" else ("number",)
    columns = [table[each].to_pylist() for each in names]
    return [(number, *row) for number, row in enumerate(zip(*columns, strict=True))]


def _records(broker: Broker, topic: str) -> list[Any]:
    found = []
    for message in committed_records(broker, topic):
        row = json.loads(message.value())
        names = COUNTED if topic == "counts" else ("number",)
        number = int(dict(message.headers())["holdfast-id"])
        found.append((number, *(row[each] for each in names)))
    return found


def committed_records(broker: Broker, topic: str) -> list[Any]:
    """All that is committed in a topic now."""
    consumer = kafka.Consumer(
        {
            "bootstrap.servers": broker.servers,
            "group.id": "judge",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    partitions = broker.partitions(topic)
    consumer.assign([kafka.TopicPartition(topic, each, 0) for each in partitions])
    found: list[Any] = []
    ended: set[Any] = set()
    deadline = time.monotonic() + WAIT_SECONDS
    while len(ended) < len(partitions) and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 0.2):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return found


def _rows(servers: Servers) -> list[Any]:
    assert servers.postgres is not None
    with psycopg.connect(servers.postgres.connection) as connection:
        if connection.execute("SELECT to_regclass('counts')").fetchone() == (None,):
            return []
        return list(connection.execute("SELECT seq, server, readings, total FROM counts"))


def _delta(servers: Servers) -> list[Any]:
    if not deltalake.DeltaTable.is_deltatable(str(servers.delta)):
        return []
    return _listed(deltalake.DeltaTable(servers.delta).to_pyarrow_table())


def _iceberg(servers: Servers) -> list[Any]:
    catalog = SqlCatalog("default", **servers.iceberg)
    if not catalog.table_exists("shop.counts"):
        return []
    return _listed(catalog.load_table("shop.counts").scan().to_arrow())


def _objects(servers: Servers) -> list[Any]:
    assert servers.store is not None
    system, bucket = servers.store.system()
    place = f"{bucket}/counts"
    if not system.get_file_info(fs.FileSelector(place, allow_not_found=True)):
        return []
    return _listed(pq.read_table(place, filesystem=system))


def _listed(table: pa.Table) -> list[Any]:
    columns = [table[each].to_pylist() for each in ("seq", *COUNTED)]
    return list(zip(*columns, strict=True))
