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

*Race* is `protection = "race"`, read without an order ([how](../design/race.md#pairs)); *active*
the same with one feeder for each reader, in order. Whom one follows is chosen without regard to
distances, so in active's three turns those who are followed are at each site for the same time;
*nearest* is the best that active could choose, all of it known beforehand. *Race, in order* is when
everything older was there, too: what a reader of race waits for that needs the order. Both
deployments are up all the time; readings come to one at a time, in turns. The age of an alert is
the time from its newer reading to its arrival. Buckets take {bucket} ms: whoever waits for an order
waits for their ends.

![Ages of alerts, and gaps after the followed replica is cut off](race.png)
"""
TAIL = """
*Links alone* is what the matrix of latencies gives: where replicas race the least over all of them
at each hop, of two readings made at once; with one feeder the furthest source, and the way over
those who are followed. The rest is the protocols', the processor's, and, in order, the bucket's.

*Slowed*: the site whose replica the operator follows has a third of its time. *Gap*: all links of
that replica are cut without a word; the longest time between results, less the usual one, median of
{cuts}. `exact_sum_cost` is the engine's throughput with sums that do not depend on the order over
that with sums in order: {exact_ms:.0f} against {ordered_ms:.0f} ms a bucket of 100,000 tuples, and
{exact_bytes:.0f} against {ordered_bytes:.0f} bytes a window.

*Missing*: of the two inputs of a union one is cut off for {missing_s:g} s; the ages of the results
that rest on the other, all of them stable.

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

KINDS = ("calm", "slowed", "missing")


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
        *_kills(told),
        ("identical to an undisturbed run", told["identical"], "true wanted"),
        ("in order, p50 over active", told["p50_in_order_over_active"], ""),
        ("in order, p99 over active", told["p99_in_order_over_active"], ""),
        ("in order, p50 over nearest", told["p50_in_order_over_nearest"], ""),
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
        "| ms | links alone | p50 | p99 | p99, a site slowed | p99, an input missing |",
        "|---|---|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in _ages(told)),
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


def _kills(told: dict[str, Any]) -> list[tuple[str, Any, str]]:
    """The row of the processes that were killed, if any were."""
    if told["kill_gap_ms"] is None:
        return []
    return [("gap after kill -9, ms", told["kill_gap_ms"], f"active {told['kill_gap_ms_active']}")]


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


def _ages(told: dict[str, Any]) -> list[tuple[str, ...]]:
    """The rows of the table of ages."""
    links = told["links_ms"]
    found = []
    for mode in ("race", "active"):
        each = told["modes"][mode]
        p99s = [f"{each[f'p99_{kind}_ms']:,.0f}" for kind in KINDS]
        found.append((mode, f"{links[mode]:,.0f}", f"{each['p50_calm_ms']:,.0f}", *p99s))
    others = (("race, in order", "race", "in_order"), ("nearest", "active", "nearest"))
    for name, mode, kind in others:
        each = told["modes"][mode]
        p50, p99 = (f"{each[f'{which}_{kind}_ms']:,.0f}" for which in ("p50", "p99"))
        found.append((name, f"{links[name.partition(',')[0]]:,.0f}", p50, p99, "–", "–"))
    return found


def draw(told: dict[str, Any], figure: Figure) -> None:
    ages, gaps = figure.subplots(1, 2)
    race, active = told["modes"]["race"], told["modes"]["active"]
    for name, found in (("race", race), ("active", active)):
        names = ("p50_calm_ms", "p99_calm_ms", "p99_slowed_ms")
        values = [found[each] for each in names]
        ages.plot(["p50", "p99", "p99 slowed"], values, marker="o", label=name)
        gaps.scatter([name] * len(found["gaps_ms"]), found["gaps_ms"], s=16)
    for name, found, kind in (("race, in order", race, "in_order"), ("nearest", active, "nearest")):
        values = [found[f"p50_{kind}_ms"], found[f"p99_{kind}_ms"]]
        ages.plot(["p50", "p99"], values, marker="o", label=name)
    ages.set_ylabel("age of alerts, ms")
    ages.set_ylim(bottom=0)
    ages.legend(frameon=False, fontsize=8)
    gaps.set_ylabel("gap after a silent cut, ms")
    for axes in (ages, gaps):
        axes.spines[["top", "right"]].set_visible(False)


def record_page(told: dict[str, Any], options: str) -> None:
    arguments = f" ARGS='{options}'" if options else ""
    command = f"make bench BENCH=race{arguments}"
    record(told, command, lambda figure: draw(told, figure), page_of(told, command))
