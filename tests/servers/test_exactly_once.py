"""Kafka to Kafka, PostgreSQL, Delta, Iceberg and S3, while broker and processes are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.java_servers import StoreServer
from benchmarks.kafka_broker import Broker
from benchmarks.kafka_pipeline import Blows, Sender, Servers, judge, pipeline, reading
from benchmarks.postgres_server import PostgresServer

pytestmark = [pytest.mark.thorough, pytest.mark.long, pytest.mark.timeout(900)]


def test_every_sink_has_what_the_oracle_has(tmp_path: Path) -> None:
    with (
        Broker(tmp_path / "broker") as broker,
        PostgresServer() as postgres,
        StoreServer(tmp_path / "store") as store,
    ):
        servers = Servers(tmp_path, broker, postgres, store)
        with pipeline(servers) as supervisor:
            sender = Sender(broker, 500, reading)
            Blows(supervisor, broker, seed=1).strike(
                8, ["objects", "delta", "rows", "counts"], (0.2, 1.0)
            )
            store.kill()
            store.start()
            sent = sender.stop()
            verdict = judge(servers, sent)
        assert verdict.differ == []
        assert (verdict.lost, verdict.doubled) == (0, 0)
