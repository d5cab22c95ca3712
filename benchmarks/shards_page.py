"""The page of benchmark shards: each part as the run printed it that measured it last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.machine import machine_text
from benchmarks.record import record, recorded

HEAD = """# Shards: what dividing a fragment costs, and what losing a shard does

Each part says by which command, when, and how busy the machine was; the figures are as printed
([all of them](shards.json)). [How shards work](../design/shards.md).
"""

Rows = list[tuple[str, str, str]]

NOTES = {
    "engine": (
        "Buckets of 500,000 tuples. One replica has both cores, a shard one; every process cuts "
        "its share out of the whole bucket itself, and merging is counted. Two of the four shards' "
        "processes are those of two shards, too, and so run more jobs than the one replica's does."
    ),
    "ring": (
        "Shards are killed in turn, so from the second time on the heir was itself started a "
        "moment ago. What is measured when a shard is back lasts until it does its own work again, "
        "with a JVM that is seconds old. State is sent for windows of an hour, of which nearly "
        "every tuple changes another one, twice a second and compressed; mirrored tuples would be "
        "as feeds and logs have them, which are not."
    ),
    "messages": (
        "Checkpoints and their confirmations go by time, not by tuples, and to one neighbour: the "
        "paper counts a record for every other replica. Simulated is the network; what decides and "
        "sends is what the product runs."
    ),
    "delivery": (
        "Both kinds run in the same processes, four in all, each with a driver. They are killed "
        "half a second to three seconds after they were started, many of them before they take "
        "tuples: what comes at most once meanwhile is lost. Single rounds differ by more than what "
        "is compared, as two cores have all processes to run, also those that wait; what the "
        "processors had to do, in all processes, varies less."
    ),
}


def record_parts(parts: dict[str, dict[str, Any]], command: str, machine: dict[str, Any]) -> None:
    """Keep what some parts have printed, beside what is known of the others."""
    known: dict[str, Any] = recorded("shards").get("parts", {})
    for part, figures in parts.items():
        known[part] = {"command": command, **figures, "machine": machine}
    record({"bench": "shards", "parts": known}, command, page=page_of(known))


def page_of(parts: dict[str, dict[str, Any]]) -> str:
    lines = [HEAD]
    missing = [title for part, (title, _) in _PARTS.items() if part not in parts]
    if missing:
        lines += [f"Not recorded yet: {'; '.join(missing)}.", ""]
    for part, (title, rows_of) in _PARTS.items():
        if part not in parts:
            continue
        told = parts[part]
        seconds = told[f"{part}_seconds"]
        lines += [
            f"## {title}",
            f"`{told['command']}` on {machine_text(told['machine'])}, {seconds:.0f} s in all.",
            "",
            "| | | wanted |",
            "|---|---|---|",
            *(f"| {what} | {found} | {wanted} |" for what, found, wanted in rows_of(told)),
            "",
            *([NOTES[part], ""] if part in NOTES else []),
        ]
    return "\n".join(lines)


def _engine(told: dict[str, Any]) -> Rows:
    wanted = {"2": "at least 0.95"}
    rows = [
        (f"{shards} shards, over one replica", f"{ratio:g}", wanted.get(shards, ""))
        for shards, ratio in told["throughput_by_shards"].items()
        if shards != "1"
    ]
    rates = ", ".join(f"{shards}: {rate:,}" for shards, rate in told["tuples_per_second"].items())
    same = "yes" if told["shards_identical"] else "no"
    return [*rows, ("tuples a second, by shards", rates, ""), ("same results", same, "yes")]


def _ring(told: dict[str, Any]) -> Rows:
    takeovers = ", ".join(f"{gap:g}" for gap in told["takeover_gaps_ms"])
    back = ", ".join(f"{gap:g}" for gap in told["reinstate_gaps_ms"])
    lost, doubled = told["lost"]["exactly-once"], told["doubled"]["exactly-once"]
    sizes = ", ".join(f"{size} bytes: {ratio:g}" for size, ratio in _items(told))
    return [
        ("open windows", f"{told['open_windows']:,}", ""),
        (
            "without stable results when a shard is killed, ms beyond the usual",
            f"{told['takeover_gap_ms']:g} ({takeovers})",
            "at most X, 3,000; aim 500",
        ),
        (
            "the same when it is back and takes its work again",
            f"{told['reinstate_gap_ms']:g} ({back})",
            "at most X, 3,000; aim 500",
        ),
        ("usual time between results, ms", f"{told['usual_ms']:g}", ""),
        ("kills", f"{told['kills']}", ""),
        ("results", f"{told['results']:,}, lost {lost}, doubled {doubled}", "0 and 0"),
        ("to the bit those of one engine", "yes" if told["identical"] else "no", "yes"),
        (
            "messages for 1,000 tuples beside data and pings",
            f"{told['ring_messages']:g}",
            "",
        ),
        ("bytes of state sent for each tuple", f"{told['bytes_per_tuple_record']:g}", ""),
        ("over mirroring each tuple, by its size", sizes, "below 1"),
    ]


def _messages(told: dict[str, Any]) -> Rows:
    rows = []
    for shards, all_of_them in told["messages"].items():
        kinds = told["messages_by_kind"][shards]
        counted = {kind: each for kind, each in kinds.items() if kind not in ("tuples", "rate")}
        by_kind = ", ".join(f"{kind} {each:g}" for kind, each in counted.items())
        tuples = f"{kinds['tuples']:,} tuples"
        tuples += f" at {kinds['rate']:,}/s" if "rate" in kinds else ""
        what = f"two operators with {shards} shards each, {tuples}"
        rows.append((what, f"{all_of_them:g} ({by_kind})", ""))
    two, four = told["messages"]["2"], told["messages"]["4"]
    return [*rows, ("four over two", f"{four / two:.2f}", "the paper: 6 (2,400 over 400)")]


def _items(told: dict[str, Any]) -> list[tuple[str, float]]:
    return list(told["bytes_over_mirroring"].items())


def _cost(told: dict[str, Any]) -> Rows:
    def rounds_of(shards: str, size: str) -> list[float]:
        return sorted(told["burst_ratios"][shards][size])

    def cpu_of(shards: str, size: str) -> str:
        found = told.get("exactly_over_at_most_cpu", {}).get(shards, {}).get(size)
        return "" if found is None else f"; processors' time {found:g}"

    return [
        (
            f"time of exactly once over at most once, {shards} shards, {size} tuples",
            f"{ratio:g}, the median of {', '.join(f'{one:g}' for one in rounds_of(shards, size))} "
            f"({told['burst_seconds'][shards][size]['exactly-once']:g} s)" + cpu_of(shards, size),
            "at most 1.1" if ratio <= 1.1 else f"at most 1.1: missed by {ratio - 1.1:.3f}",
        )
        for shards, ratios in told["exactly_over_at_most"].items()
        for size, ratio in ratios.items()
    ]


def _delivery(told: dict[str, Any]) -> Rows:
    rows = _cost(told)
    rows += [
        (
            f"time of exactly once if each batch waits for the one before, over not waiting, "
            f"{shards} shards",
            f"{ratio:g}",
            "",
        )
        for shards, ratio in told.get("waiting_over_exactly", {}).items()
    ]
    wanted = {"at-least-once": "lost 0", "at-most-once": "doubled 0"}
    for kind, lost in told["lost"].items():
        said = f"sent {told['sent'][kind]:,}, lost {lost:,}, doubled {told['doubled'][kind]:,}"
        rows.append((f"{kind}, while shards are killed", said, wanted[kind]))
    return rows


def _rescale(told: dict[str, Any]) -> Rows:
    numbers = ", ".join(str(each) for each in told["rescaled"])
    gaps = ", ".join(f"{gap:g}" for gap in told["rescale_gaps_ms"])
    took = ", ".join(f"{each:g}" for each in told["rescale_took_seconds"])
    return [
        ("shards", numbers, ""),
        ("longest time without stable results, ms beyond the usual", gaps, "at most X, 3,000"),
        ("until the old shards were gone, s", took, ""),
        ("lost", f"{told['rescale_lost']}", "0"),
        ("doubled", f"{told['rescale_doubled']}", "0"),
    ]


def _scale(told: dict[str, Any]) -> Rows:
    rows = []
    for one in told["scale"]:
        kinds = [
            f"{value:g} {key.removesuffix('_per_second_and_shard')}"
            for key, value in one.items()
            if key.endswith("_per_second_and_shard")
        ]
        rows.append((f"{one['shards']} shards: messages a second, each", ", ".join(kinds), ""))
        if "rescaled_to" in one:
            said = (
                f"{one['rescale_messages']:,}, {one['rescale_messages_per_new_shard']:g} for each"
            )
            what = f"messages with which they become {one['rescaled_to']}, beside data and pings"
            rows.append((what, f"{said} new one, in {one['rescale_s']:g} s", ""))
    return rows


_PARTS: dict[str, tuple[str, Callable[[dict[str, Any]], Rows]]] = {
    "engine": ("Throughput in one process and in shards", _engine),
    "ring": ("A ring of two hybrid shards, at 3,000 tuples a second", _ring),
    "delivery": ("Every kind of delivery", _delivery),
    "rescale": ("Another number of shards, at 3,000 tuples a second", _rescale),
    "messages": ("Messages for 1,000 tuples beside data and pings, simulated", _messages),
    "scale": ("How messages grow, simulated", _scale),
}
