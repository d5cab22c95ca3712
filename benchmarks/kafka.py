"""Kafka to Kafka: latency and throughput exactly once, and nothing lost or doubled under kills.

    make bench BENCH=kafka               200 kills
    make bench BENCH=kafka ARGS=--quick  10 kills, about four minutes
    --only kills                         one part of it: throughput, latency or kills
    --record                             keeps the figures in docs/results; with --only kills, for
                                         the page that the next recorded run of all parts writes

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
from benchmarks.kafka_pipeline import Blows, Sender, Servers, judge, pipeline, reading
from benchmarks.kafka_throughput import measure_throughput
from benchmarks.machine import describe_machine
from benchmarks.postgres_server import PostgresServer
from benchmarks.record import record, recorded

WAYS = ("in", "out")
TURNS = 7
# What a run of only this part is recorded as.
KILLS_ALONE = "kafka-kills"
KILLED = ["passed", "unique", "counts", "rows", "delta", "iceberg"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="10 kills, about four minutes")
    parser.add_argument("--kills", type=int, default=None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/results")
    options = parser.parse_args(arguments)
    if options.record and options.only not in (None, "kills"):
        parser.error("--record keeps the figures of all parts, or of --only kills")
    started = time.monotonic()
    result: dict[str, Any] = {"bench": KILLS_ALONE if options.only == "kills" else "kafka"}
    with tempfile.TemporaryDirectory(prefix="holdfast-kafka-") as name:
        for part in [options.only] if options.only else PARTS:
            found = PARTS[part](Path(name) / part, options)
            print(f"{part} {found}")
            result |= found
    differ = result.pop("differ", [])
    for each in differ:
        print(each)
    result |= {"seconds": round(time.monotonic() - started), "machine": describe_machine()}
    print(json.dumps(result))
    if options.record:
        told = " ".join(each for each in sys.argv[1:] if each != "--record")
        command = f"make bench BENCH=kafka ARGS='{told}'" if told else "make bench BENCH=kafka"
        told_too = None if options.only else page(result, command, recorded(KILLS_ALONE))
        record(result, command, page=told_too)
    return 1 if differ else 0


def _throughput(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    with Broker(directory) as broker:
        found = measure_throughput(broker, 400_000 if options.quick else 1_000_000, TURNS)
    return {
        "throughput_records_s": {way: found.median(way) for way in WAYS},
        "bare_records_s": {name: found.median(f"bare_{name}") for name in (*WAYS, "out_headers")},
        "throughput_ratio": {way: found.ratio(way, f"bare_{way}") for way in WAYS},
        "throughput_ratio_of_bests": {
            way: found.ratio_of_bests(way, f"bare_{way}") for way in WAYS
        },
        "throughput_ratio_with_headers": found.ratio("out", "bare_out_headers"),
        "throughput_turns": {
            name: [round(each) for each in turns] for name, turns in found.turns.items()
        },
    }


def _latency(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    directory.mkdir()
    with Broker(directory / "broker") as broker:
        latency = measure_latency(Servers(directory, broker), 20.0 if options.quick else 120.0)
    return {
        f"e2e_{what}": {kind: found[what] for kind, found in latency.items()}
        for what in ("p50_ms", "p99_ms", "parts_p50_ms")
    }


def _kills(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    kills = options.kills or (10 if options.quick else 200)
    directory.mkdir()
    with (
        Broker(directory / "broker") as broker,
        PostgresServer() as postgres,
    ):
        servers = Servers(directory, broker, postgres)
        with pipeline(servers) as supervisor:
            sender = Sender(broker, 500, reading)
            Blows(supervisor, broker, options.seed).strike(kills, KILLED, (0.2, 1.5))
            verdict = judge(servers, sender.stop())
    return {
        "kills": kills,
        "lost": verdict.lost,
        "doubled": verdict.doubled,
        "differ": verdict.differ,
    }


PARTS = {"throughput": _throughput, "latency": _latency, "kills": _kills}

if __name__ == "__main__":
    sys.exit(main())
