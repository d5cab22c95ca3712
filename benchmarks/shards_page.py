"""The page of benchmark shards: each part as the run printed it that measured it last."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.machine import machine_text
from benchmarks.record import record, recorded
from benchmarks.shards_bars import (
    AIM_MS,
    EXACTLY_OVER_MOST,
    GAPS,
    PROMISED,
    THROUGHPUT_OF_TWO,
    missed,
)

HEAD = """# Shards: what dividing a fragment costs, and what losing a shard does

Written by `make bench BENCH=shards` with `ARGS=--record`; `ARGS='--only ring --record'` writes one
part anew and leaves the others as they are. The short form is `--quick`: fewer kills and shorter
bursts. The figures are as printed ([all of them](shards.json)).
[How shards work](../design/shards.md).
"""
FORMS = {True: "short", False: "full"}

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
        "All kinds run in the same processes, four in all, each with a driver; each is merged by a "
        "process of its own. No shard has a copy that stands by: with copies, exactly once writes "
        "its results and sends its state besides, which is the price of standing by and not of "
        "delivery. What comes at most once while a process starts is lost. Single rounds "
        "differ by more than what is compared, as two cores have all processes to run, also those "
        "that wait; what the processors had to do, in all processes, varies less."
    ),
}


def record_parts(parts: dict[str, dict[str, Any]], command: str, machine: dict[str, Any]) -> None:
    """Keep what some parts have printed, beside what is known of the others."""
    known: dict[str, Any] = recorded("shards").get("parts", {})
    for part, figures in parts.items():
        known[part] = {"command": command, **figures, "machine": machine}
    record({"bench": "shards", "parts": known}, command, page=page_of(known))


def recorded_in_full(parts: Iterable[str]) -> list[str]:
    """Those of some parts of which the full form is recorded."""
    known: dict[str, Any] = recorded("shards").get("parts", {})
    return [part for part in parts if part in known and _form(known[part]) == FORMS[False]]


def page_of(parts: dict[str, dict[str, Any]]) -> str:
    """The whole page: of each part how it was measured and what it misses, then its figures."""
    there = {part: parts[part] for part in _PARTS if part in parts}
    lines = [HEAD, "| part | form | command | when | bars missed |", "|---|---|---|---|---|"]
    for part, (title, _) in _PARTS.items():
        cells = [title, "not recorded yet", "", "", ""]
        if part in there:
            told = there[part]
            when, bars = told["machine"]["date"], "; ".join(missed(part, told)) or "none"
            cells[1:] = [_form(told), f"`{told['command']}`", when, bars]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for part, told in there.items():
        title, rows_of = _PARTS[part]
        seconds = told[f"{part}_seconds"]
        lines += [
            f"## {title}",
            f"The {_form(told)} form, `{told['command']}`, on {machine_text(told['machine'])}, "
            f"{seconds:.0f} s in all.",
            "",
            "| | | wanted |",
            "|---|---|---|",
            *(f"| {what} | {found} | {wanted} |" for what, found, wanted in rows_of(told)),
            "",
            *([NOTES[part], ""] if part in NOTES else []),
        ]
    return "\n".join(lines)


def _form(told: dict[str, Any]) -> str:
    return FORMS["--quick" in told["command"].replace("'", " ").split()]


def _engine(told: dict[str, Any]) -> Rows:
    wanted = {"2": f"at least {THROUGHPUT_OF_TWO:g}"}
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
            f"{GAPS}; aim {AIM_MS}",
        ),
        (
            "the same when it is back and takes its work again",
            f"{told['reinstate_gap_ms']:g} ({back})",
            f"{GAPS}; aim {AIM_MS}",
        ),
        ("usual time between results, ms", f"{told['usual_ms']:g}", ""),
        ("kills", _kills(told), ""),
        ("results", f"{told['results']:,}, lost {lost}, doubled {doubled}", "0 and 0"),
        ("to the bit those of one engine", "yes" if told["identical"] else "no", "yes"),
        *_entry(told, ""),
        (
            "messages for 1,000 tuples beside data and pings",
            f"{told['ring_messages']:g}",
            "",
        ),
        ("bytes of state sent for each tuple", f"{told['bytes_per_tuple_record']:g}", ""),
        ("over mirroring each tuple, by its size", sizes, "below 1"),
    ]


def _kills(told: dict[str, Any]) -> str:
    at_work = told.get("kills_at_work")
    return f"{told['kills']}" + ("" if at_work is None else f", {at_work} of one at work")


def _entry(told: dict[str, Any], prefix: str) -> Rows:
    """What became of tuples where they come in; pages of earlier versions did not look."""
    if f"{prefix}entry_lost" not in told:
        return []
    lost, doubled = told[f"{prefix}entry_lost"], told[f"{prefix}entry_doubled"]
    return [("tuples at the entry point", f"lost {lost}, doubled {doubled}", "0 and 0")]


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
    rows = []
    for kind, ratios_of, rounds_of, wanted in (
        ("exactly", "exactly_over_at_most", "burst_ratios", EXACTLY_OVER_MOST),
        ("at least", "least_over_at_most", "least_burst_ratios", None),
    ):
        # Pages of earlier versions have no bursts for at least once.
        for shards, ratios in told.get(ratios_of, {}).items():
            for size, ratio in ratios.items():
                rounds = ", ".join(f"{one:g}" for one in sorted(told[rounds_of][shards][size]))
                seconds = told["burst_seconds"][shards][size][f"{kind.replace(' ', '-')}-once"]
                cpu = told.get(f"{ratios_of}_cpu", {}).get(shards, {}).get(size)
                said = f"{ratio:g}, the median of {rounds} ({seconds:g} s)"
                said += "" if cpu is None else f"; processors' time {cpu:g}"
                what = f"time of {kind} once over at most once, {shards} shards, {size} tuples"
                rows.append((what, said, _at_most(wanted, ratio)))
    return rows


def _at_most(wanted: float | None, ratio: float) -> str:
    if wanted is None:
        return ""
    said = f"at most {wanted:g}"
    return said if ratio <= wanted else f"{said}: missed by {ratio - wanted:.3f}"


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
    for kind, lost in told["lost"].items():
        kills = told.get("delivery_kills", {}).get(kind)
        what = "while shards are killed"
        if kills is not None:
            what = f"while its processes are killed {kills} times, each time at work"
        said = f"sent {told['sent'][kind]:,}, lost {lost:,}, doubled {told['doubled'][kind]:,}"
        rows.append((f"{kind}, {what}", said, f"{PROMISED[kind]} 0"))
    return rows


def _rescale(told: dict[str, Any]) -> Rows:
    numbers = ", ".join(str(each) for each in told["rescaled"])
    same = "yes" if told.get("rescale_identical") else "no"
    gaps = ", ".join(f"{gap:g}" for gap in told["rescale_gaps_ms"])
    took = ", ".join(f"{each:g}" for each in told["rescale_took_seconds"])
    return [
        ("shards", numbers, ""),
        ("longest time without stable results, ms beyond the usual", gaps, GAPS),
        ("until the old shards were gone, s", took, ""),
        ("lost", f"{told['rescale_lost']}", "0"),
        ("doubled", f"{told['rescale_doubled']}", "0"),
        *([("to the bit those of one engine", same, "yes")] if "rescale_identical" in told else []),
        *_entry(told, "rescale_"),
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
