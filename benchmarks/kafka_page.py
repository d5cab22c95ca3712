"""The page about the benchmark of Kafka, from what a run printed."""

from __future__ import annotations

from typing import Any

from benchmarks.machine import machine_text

RATIO_WANTED = 0.5


def page(result: dict[str, Any], command: str) -> str:
    """``docs/results/kafka.md``."""
    ratios = result["throughput_ratio"]
    missed = [way for way, found in ratios.items() if found < RATIO_WANTED]
    said = (
        "Both ratios are at least what is wanted."
        if not missed
        else f"**Missed**: the ratio {' and '.join(missed)} is below {RATIO_WANTED}."
    )
    return f"""# Kafka to Kafka, exactly once: latency, throughput, and kills

`{command}` on {machine_text(result["machine"])}, {result["seconds"]} s in all. The figures are as
printed ([all of them](kafka.json)). [What sources and sinks promise](../connectors.md).

Everything is on this one machine: the broker, the deployment (an entry point, one replica with its
Spark driver, a client for each sink), who sends and who looks.

## Latency at 3,000 records a second
From when a record was made until a consumer of committed records sees its result in the other
topic. Buckets of 20 ms, transactions every 50 ms.

| | p50, ms | p99, ms | median in | through | commit |
|---|---|---|---|---|---|
{_latency(result)}

*in* is until the entry point has the record; *through* the log, the bucket, its Spark job, the
output's log, what the client gathers and sends; *commit* the end of the transaction and fetching.
Spark's real-time mode publishes 70 and 85 ms for a stateless query without transactions, on other
machines.

## Throughput of records of 100 bytes
The source makes tuples with ids and times of JSON; the bare consumer takes the values only. The
sink makes JSON and headers of tuples and commits their last id with them; the bare producer is
handed the values, in transactions of the same size. Same library, same settings, the best of three
each.

| | records/s | bare library | ratio | wanted |
|---|---|---|---|---|
{_throughput(result)}

{said}

## Kills
Broker, entry point, replica and clients are killed in turn while 500 records a second are sent.
What two Kafka topics with every record have, and a third, PostgreSQL, Delta and Iceberg with counts
by the second, is compared with one batch over what was logged, and that with what was sent.

| kills | lost | doubled |
|---|---|---|
| {result["kills"]} | {result["lost"]} | {result["doubled"]} |
"""


def _latency(result: dict[str, Any]) -> str:
    rows = []
    for kind, p50 in result["e2e_p50_ms"].items():
        parts = result["e2e_parts_p50_ms"][kind]
        told = " | ".join(f"{parts[name]:g}" for name in ("in", "through", "commit"))
        rows.append(f"| {kind} | {p50:g} | {result['e2e_p99_ms'][kind]:g} | {told} |")
    return "\n".join(rows)


def _throughput(result: dict[str, Any]) -> str:
    return "\n".join(
        f"| {way} | {found:,} | {result['bare_records_s'][way]:,} | "
        f"{result['throughput_ratio'][way]:.2f} | at least {RATIO_WANTED} |"
        for way, found in result["throughput_records_s"].items()
    )
