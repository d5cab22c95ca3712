"""Kafka to Kafka: latency and throughput exactly once, and nothing lost or doubled under kills.

    make bench BENCH=kafka               200 kills
    make bench BENCH=kafka ARGS=--quick  10 kills, about four minutes
    --record                             keeps the figures in docs/results

A real broker and, for the kills, a real PostgreSQL, Delta and Iceberg; broker, entry point, replica
and clients are killed in turn while records are sent, and what is committed in each sink is
compared with the oracle.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.kafka_broker import Broker
from benchmarks.kafka_latency import measure_latency
from benchmarks.kafka_page import page
from benchmarks.kafka_pipeline import Blows, Sender, Servers, Verdict, judge, pipeline, reading
from benchmarks.kafka_throughput import measure_throughput
from benchmarks.machine import describe_machine
from benchmarks.postgres_server import PostgresServer
from benchmarks.record import record

KILLED = ["passed", "unique", "counts", "rows", "delta", "iceberg"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="10 kills, about four minutes")
    parser.add_argument("--kills", type=int, default=None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/results")
    options = parser.parse_args(arguments)
    kills = options.kills or (10 if options.quick else 200)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-kafka-") as name:
        directory = Path(name)
        throughput = _throughput(directory / "throughput", 400_000 if options.quick else 1_000_000)
        print(f"throughput {throughput}")
        latency = _latency(directory / "latency", 20.0 if options.quick else 120.0)
        print(f"latency {latency}")
        verdict = _kills(directory / "kills", kills, options.seed)
    for each in verdict.differ:
        print(each)
    ratios = {way: throughput[way] / throughput[f"bare_{way}"] for way in ("in", "out")}
    result: dict[str, Any] = {
        "bench": "kafka",
        "e2e_p50_ms": {kind: found["p50_ms"] for kind, found in latency.items()},
        "e2e_p99_ms": {kind: found["p99_ms"] for kind, found in latency.items()},
        "e2e_parts_p50_ms": {kind: found["parts_p50_ms"] for kind, found in latency.items()},
        "throughput_records_s": {way: throughput[way] for way in ("in", "out")},
        "bare_records_s": {way: throughput[f"bare_{way}"] for way in ("in", "out")},
        "throughput_ratio": {way: round(each, 2) for way, each in ratios.items()},
        "kills": kills,
        "lost": verdict.lost,
        "doubled": verdict.doubled,
        "seconds": round(time.monotonic() - started),
        "machine": describe_machine(),
    }
    print(json.dumps(result))
    if options.record:
        told = " ".join(each for each in sys.argv[1:] if each != "--record")
        command = f"make bench BENCH=kafka ARGS='{told}'" if told else "make bench BENCH=kafka"
        record(result, command, page=page(result, command))
    return 1 if verdict.differ else 0


def _throughput(directory: Path, records: int) -> dict[str, float]:
    with Broker(directory) as broker:
        return measure_throughput(broker, records, turns=3)


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
