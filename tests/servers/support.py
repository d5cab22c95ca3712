"""Records into a topic and out of it, and a source read until it has what is expected."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import confluent_kafka as kafka

from benchmarks.kafka_broker import Broker
from holdfast.connect.ingest import Inlet

# Generous: the broker has to share the machine.
SECONDS = 120.0
_numbers = itertools.count()


def topic_name(what: str) -> str:
    """A name that no other test has."""
    return f"{what}-{next(_numbers)}"


def send(
    broker: Broker,
    topic: str,
    values: Iterable[Any],
    partition: int | None = None,
    **options: Any,
) -> None:
    """Values, as JSON unless they are bytes or None, durably."""
    producer = kafka.Producer({"bootstrap.servers": broker.servers, "log_level": 0})
    failed: list[Any] = []
    where: dict[str, Any] = {} if partition is None else {"partition": partition}
    for value in values:
        data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(
            topic,
            data,
            on_delivery=lambda error, _: failed.append(error) if error else None,
            **{**where, **options},
        )
    left = producer.flush(SECONDS)
    assert not left
    assert not failed, failed


def row(number: int, server: str = "a", at: int | None = None) -> dict[str, Any]:
    """A reading of the second ``number``."""
    second = number if at is None else at
    time_of_day = f"00:{second // 60:02}:{second % 60:02}"
    return {
        "at": f"2024-01-01T{time_of_day}Z",
        "server": server,
        "cpu": number,
    }


def records(broker: Broker, topic: str, count: int, seconds: float = SECONDS) -> list[Any]:
    """So many committed records of a topic, in the order of their partitions."""
    consumer = kafka.Consumer(
        {
            "bootstrap.servers": broker.servers,
            "group.id": "test",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    partitions = broker.partitions(topic)
    consumer.assign([kafka.TopicPartition(topic, each, 0) for each in partitions])
    found: list[Any] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + seconds
    while len(found) < count or len(ended) < len(partitions):
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        for message in consumer.consume(1_000, 0.2):
            error = message.error()
            if error is None:
                found.append(message)
                ended.discard(message.partition())
            elif error.code() == kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return sorted(found, key=lambda each: (each.partition(), each.offset()))


def take_until(inlet: Inlet, is_so: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Read until something is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if not inlet.take():
            time.sleep(0.005)
        assert time.monotonic() < deadline, f"{inlet.tuples} tuples, {inlet.problem}"


def letters(directory: Path) -> list[dict[str, Any]]:
    """The dead letters that an inlet of the directory wrote."""
    path = directory / "dead-letters.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
