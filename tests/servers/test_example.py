"""The example between two topics: what its neighbours get is what the job that it replaces gave."""

from __future__ import annotations

import datetime
import json
import shutil
import time
from pathlib import Path
from typing import Any

import confluent_kafka as kafka
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.kafka_broker import Broker
from benchmarks.kafka_pipeline import committed_records, wait_until
from holdfast.deployment import load_deployment
from holdfast.testing.deployed import supervised
from tests.servers.support import SECONDS

pytestmark = [pytest.mark.thorough, pytest.mark.long, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "kafka"
SHOPS = ("north", "south", "west")


def orders(began: int, seconds: int) -> list[tuple[int, dict[str, Any]]]:
    """When each was made, in milliseconds, and what it says; some amounts do not count."""
    return [
        (began + 100 * number, {"shop": SHOPS[number % 3], "amount": number % 7 - 1.0})
        for number in range(10 * seconds)
    ]


def the_job(spark: SparkSession, made: list[tuple[int, dict[str, Any]]]) -> list[tuple[str, str]]:
    """Keys and values as the Structured Streaming job writes them, of one batch."""
    rows = [(each["shop"], each["amount"], at) for at, each in made]
    frame = spark.createDataFrame(rows, "shop string, amount double, at bigint")
    found = (
        frame.withColumn("timestamp", F.timestamp_millis("at"))
        .filter("amount > 0")
        .groupBy(F.window("timestamp", "10 seconds"), "shop")
        .agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))
        .select(F.col("shop").alias("key"), F.to_json(F.struct("*")).alias("value"))
    )
    return [(each["key"], each["value"]) for each in found.collect()]


def read(key: str, value: str | bytes) -> tuple[Any, ...]:
    """A record as whoever reads the topic takes it: fields by name, times as times."""
    row = json.loads(value)
    window = [datetime.datetime.fromisoformat(row["window"][name]) for name in ("start", "end")]
    assert [*row] == ["window", "shop", "revenue", "orders"]
    return (key, *window, row["shop"], row["revenue"], row["orders"])


def test_the_neighbours_of_the_job_notice_nothing(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "deployment.toml"
    file.write_text(file.read_text().replace("127.0.0.1:9092", broker.servers))
    broker.create("orders", 2)
    broker.create("revenue", 2)
    began = int(time.time() * 1000) // 10_000 * 10_000 - 60_000
    made = orders(began, 60)
    closed = [each for each in made if each[0] < began + 50_000]
    expected = sorted(read(*each) for each in the_job(spark, closed))
    producer = kafka.Producer({"bootstrap.servers": broker.servers, "log_level": 0})
    for number, (at, order) in enumerate(made):
        producer.produce("orders", json.dumps(order), partition=number % 2, timestamp=at)
    assert producer.flush(SECONDS) == 0
    with supervised(load_deployment(file)):

        def found() -> list[tuple[Any, ...]]:
            records = committed_records(broker, "revenue")
            rows = [read(each.key().decode(), each.value()) for each in records]
            end = datetime.datetime.fromtimestamp(began / 1000 + 50, datetime.UTC)
            return sorted(row for row in rows if row[2] <= end)

        wait_until(lambda: len(found()) >= len(expected), f"{len(expected)} records")
        assert found() == expected
