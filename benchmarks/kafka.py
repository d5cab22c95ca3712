"""Kafka to Kafka: latency and throughput exactly once, and nothing lost or doubled under kills.

    make bench BENCH=kafka               200 kills
    make bench BENCH=kafka ARGS=--quick  10 kills, about four minutes

A real broker and, for the kills, a real PostgreSQL, Delta and Iceberg; broker, entry point, replica
and clients are killed in turn while records are sent, and what is committed in each sink is
compared with the oracle.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.kafka_broker import Broker
from benchmarks.kafka_latency import measure_latency
from benchmarks.kafka_pipeline import Blows, Sender, Servers, Verdict, judge, pipeline, reading
from benchmarks.kafka_throughput import measure_throughput
from benchmarks.machine import describe_machine
from benchmarks.postgres_server import PostgresServer

KILLED = ["passed", "unique", "counts", "rows", "delta", "iceberg"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="10 kills, about four minutes")
    parser.add_argument("--kills", type=int, default=None)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    kills = options.kills or (10 if options.quick else 200)
    with tempfile.TemporaryDirectory(prefix="holdfast-kafka-") as name:
        directory = Path(name)
        throughput = _throughput(directory / "throughput", 100_000 if options.quick else 500_000)
        print(f"throughput {throughput}")
        latency = _latency(directory / "latency", 20.0 if options.quick else 120.0)
        print(f"latency {latency}")
        verdict = _kills(directory / "kills", kills, options.seed)
    for each in verdict.differ:
        print(each)
    ratios = {way: throughput[way] / throughput[f"bare_{way}"] for way in ("in", "out")}
    result: dict[str, Any] = {
        "benchmark": "kafka",
        "e2e_p50_ms": {kind: found["p50_ms"] for kind, found in latency.items()},
        "e2e_p99_ms": {kind: found["p99_ms"] for kind, found in latency.items()},
        "throughput_records_s": {way: throughput[way] for way in ("in", "out")},
        "bare_records_s": {way: throughput[f"bare_{way}"] for way in ("in", "out")},
        "throughput_ratio": {way: round(each, 2) for way, each in ratios.items()},
        "kills": kills,
        "lost": verdict.lost,
        "doubled": verdict.doubled,
        "machine": describe_machine(),
    }
    print(json.dumps(result))
    return 1 if verdict.differ else 0


def _throughput(directory: Path, records: int) -> dict[str, float]:
    with Broker(directory) as broker:
        return measure_throughput(broker, records, turns=2)


def _latency(directory: Path, seconds: float) -> dict[str, Any]:
    directory.mkdir()
    with Broker(directory / "broker") as broker:
        return measure_latency(Servers(directory, broker), seconds)


def _kills(directory: Path, kills: int, seed: int) -> Verdict:
    directory.mkdir()
    with (
        Broker(directory / "broker") as broker,
        PostgresServer(directory / "postgres") as postgres,
    ):
        servers = Servers(directory, broker, postgres)
        with pipeline(servers) as supervisor:
            sender = Sender(broker, 500, reading)
            Blows(supervisor, broker, seed).strike(kills, KILLED, (0.2, 1.5))
            return judge(servers, sender.stop())


if __name__ == "__main__":
    sys.exit(main())
