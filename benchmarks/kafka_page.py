"""The page about the benchmark of Kafka, from what a run printed."""

from __future__ import annotations

from typing import Any

from benchmarks.machine import machine_text

RATIO_WANTED = 0.5


def page(result: dict[str, Any], command: str, kills: dict[str, Any]) -> str:
    """``docs/results/kafka.md``; ``kills`` is an earlier run with more of them, if any."""
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
handed the values, in transactions of the same size. Same library, same settings. They take turns,
seven of each, every other turn in the opposite order: records a second are the median of the turns,
the ratio is the median of the turns' own ratios, and beside it stands the ratio of the best turns.

| | records/s | bare library | ratio | of the bests | wanted |
|---|---|---|---|---|---|
{_throughput(result)}

{said} A bare producer that is also handed the times and the headers that the sink makes, made
before the clock starts, sends {result["bare_records_s"]["out_headers"]:,} records a second: beside
that one the ratio is {result["throughput_ratio_with_headers"]:.2f}.

## Kills
Broker, entry point, replica and clients are killed in turn while 500 records a second are sent.
What two Kafka topics with every record have, and a third, PostgreSQL, Delta and Iceberg with counts
by the second, is compared with one batch over what was logged, and that with what was sent.

| kills | lost | doubled |
|---|---|---|
| {result["kills"]} | {result["lost"]} | {result["doubled"]} |
{_kills(kills)}"""


def _kills(kills: dict[str, Any]) -> str:
    if not kills:
        return ""
    return f"""
The same with {kills["kills"]} kills in {kills["seconds"]:,} s, `{kills["command"]}`, on
{machine_text(kills["machine"])}: {kills["lost"]} lost, {kills["doubled"]} doubled
([as printed](kafka-kills.json)).
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
        f"{result['throughput_ratio'][way]:.2f} | {result['throughput_ratio_of_bests'][way]:.2f} | "
        f"at least {RATIO_WANTED} |"
        for way, found in result["throughput_records_s"].items()
    )
