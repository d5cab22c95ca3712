"""The page and the picture of benchmark race, from the run itself."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from benchmarks.machine import machine_text
from benchmarks.race import BARS, EXACT_SUM_BAR
from benchmarks.record import record

HEAD = """# Race: whichever replica is first, over a wide area

Load and latency readings of servers are merged, joined on the server that was busy or far away, and
become alerts for an operator. Two fragments have three replicas each, at three sites, in three
processes of one machine; sources and operator are elsewhere. Every link takes 20 to 150 ms one way,
and up to {jitter:g} ms more, made below everything the protocols see. The world is {world}.

*Race* is `protection = "race"`; *active* the same with one feeder for each reader, whoever it began
to follow when all were well; *nearest* the same with all whom the operator rests on at the nearest
site. One mode runs after the other, with the same readings. The age of an alert is the time from
its newest reading to its arrival; buckets of {bucket} ms are part of it.

![Ages of alerts, and gaps after the followed replica is cut off](race.png)
"""
TAIL = """
*Slowed*: the site whose replica the operator follows has a third of its time. *Gap*: all links of
that replica are cut without a word; the longest time between results, less the usual one, median of
{cuts}. `exact_sum_cost` is the engine's throughput with sums that do not depend on the order over
that with sums in order: {exact_ms:.0f} against {ordered_ms:.0f} ms a bucket of 100,000 tuples, and
{exact_bytes:.0f} against {ordered_bytes:.0f} bytes a window.

*Missing*: of the two inputs of a union one is cut off for {missing_s:g} s; the ages of the results
that rest on the other. Where replicas race they are read without an order
([how](../design/race.md#the-early-lane)); with active replicas, in order, as stable tuples.

## The whole network, simulated
{servers} servers in as many cities report loads and latencies: two unions, a join, and three
results that follow from it, {replicas} replicas in all, each on a machine of its own. It runs on
the code of the protocols with every check of the [simulator](../design/simulation.md); jobs take
{job_ms:g} ms on the mean, as they did above. Of {worlds} world(s), the middle of race over active:

| | race over active | race | active |
|---|---|---|---|
{simulated}
"""

SIMULATED = (
    ("p50 of the ages, ms", "p50_over_active", "p50_ms"),
    ("p99 of the ages, ms", "p99_over_active", "p99_ms"),
    ("gap after a silent cut, ms", "gap_over_active", "gap_ms"),
    ("p99 with a server's latencies missing, ms", "unordered_over_active", "p99_missing_ms"),
    ("tuples sent a second", "traffic_over_active", "rows_per_second"),
)

AGES = ("p50_ms", "p99_ms", "p99_slowed_ms", "p99_missing_ms")


def page_of(told: dict[str, Any], command: str) -> str:
    from benchmarks.race_deployment import BUCKET_MS
    from benchmarks.race_world import JITTER_MS

    race, active = told["modes"]["race"], told["modes"]["active"]
    rows = [
        ("p50 over active", told["p50_over_active"], "at most 0.9"),
        ("p99 over active", told["p99_over_active"], "at most 0.8"),
        ("p50 over nearest", told["p50_over_nearest"], "at most 1.05"),
        ("p99 with a slowed site over active", told["p99_slowed_over_active"], "at most 0.8"),
        ("p99 with an input missing over active", told["unordered_over_active"], "at most 0.2"),
        ("gap, ms", told["gap_ms"], f"active {told['gap_ms_active']}; at most 0.3 of it"),
        ("identical to an undisturbed run", told["identical"], "true wanted"),
        ("bytes sent over active", told["traffic_over_active"], ""),
        ("exact sums over ordered ones", told["exact_sum_cost"], "at least 0.9"),
        ("CPUs busy, at most", told["busy"], "beyond 0.8 it does not count"),
        ("of that with this run", told["busy_own"], ""),
        (
            "jobs a second",
            race["jobs_per_second"],
            f"active {active['jobs_per_second']}; {race['job_ms']} and {active['job_ms']} ms each",
        ),
    ]
    ages = [
        (mode, *(f"{found[key]:,.0f}" for key in AGES))
        for mode, found in (("race", race), ("active", active))
    ]
    ages.append(
        (
            "nearest",
            f"{active['p50_nearest_ms']:,.0f}",
            f"{active['p99_nearest_ms']:,.0f}",
            "–",
            "–",
        )
    )
    world = "made of cities" if told["world"] == "made" else "one that was measured"
    lines = [HEAD.format(jitter=JITTER_MS, world=world, bucket=BUCKET_MS)]
    lines += [
        f"`{command}` on {machine_text(told['machine'])}, {told['seconds']:.0f} s in all,",
        "the figures as printed ([all of it](race.json)).",
        "",
        "| | | |",
        "|---|---|---|",
        *(f"| {what} | {value} | {more} |" for what, value, more in rows),
        "",
        "| ms | p50 | p99 | p99, a site slowed | p99, an input missing |",
        "|---|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in ages),
    ]
    whole = told["simulated"]
    modes = whole["modes"]
    simulated = [
        f"| {what} | {whole[ratio]} | {modes['race'][name]:,} | {modes['active'][name]:,} |"
        for what, ratio, name in SIMULATED
    ]
    tail = TAIL.format(
        cuts=len(race["gaps_ms"]),
        missing_s=told["missing_s"],
        simulated="\n".join(simulated),
        **told["sums"],
        **{name: whole[name] for name in ("servers", "replicas", "job_ms", "worlds")},
    )
    return "\n".join([*lines, "", _missed(told), tail])


def _missed(told: dict[str, Any]) -> str:
    """Which bars were missed and by how much, and why the run does not count, if so."""
    bars = {name: f" {told[name]}, at most {bar}" for name, bar in BARS.items()}
    bars["exact_sum_cost"] = f" {told['exact_sum_cost']}, at least {EXACT_SUM_BAR}"
    missed = "; ".join(f"`{name}`{bars.get(name, '')}" for name in told["missed"])
    found = f"Missed: {missed}." if missed else "No bar was missed."
    if not told["counts"]:
        found += (
            f" The machine was busy for {told['busy']:.0%} of the time at worst, "
            f"{told['busy_own']:.0%} with this run: it does not count."
        )
    return found


def draw(told: dict[str, Any], figure: Figure) -> None:
    ages, gaps = figure.subplots(1, 2)
    race, active = told["modes"]["race"], told["modes"]["active"]
    for name, found in (("race", race), ("active", active)):
        ages.plot(["p50", "p99", "p99 slowed"], _ages(found), marker="o", label=name)
        gaps.scatter([name] * len(found["gaps_ms"]), found["gaps_ms"], s=16)
    ages.plot(
        ["p50", "p99"],
        [active["p50_nearest_ms"], active["p99_nearest_ms"]],
        marker="o",
        label="nearest",
    )
    ages.set_ylabel("age of alerts, ms")
    ages.set_ylim(bottom=0)
    ages.legend(frameon=False, fontsize=8)
    gaps.set_ylabel("gap after a silent cut, ms")
    for axes in (ages, gaps):
        axes.spines[["top", "right"]].set_visible(False)


def _ages(found: dict[str, Any]) -> list[float]:
    return [found["p50_ms"], found["p99_ms"], found["p99_slowed_ms"]]


def record_page(told: dict[str, Any], options: str) -> None:
    arguments = f" ARGS='{options}'" if options else ""
    command = f"make bench BENCH=race{arguments}"
    record(told, command, lambda figure: draw(told, figure), page_of(told, command))
