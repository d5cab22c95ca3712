"""What the benchmark of the page prints, and the page of its results."""

from __future__ import annotations

import statistics
from datetime import date
from typing import Any

from benchmarks.machine import machine_text

VIEWERS, ROUNDS = 10, 9


def percentile(values: list[float], share: float) -> float:
    """The smallest value that is at least as large as so many of them."""
    found = sorted(values)
    return found[min(len(found) - 1, int(share * len(found)))]


def ages(
    drawn: list[tuple[str, str, float]], wrote: dict[str, list[tuple[float, str]]], since: float
) -> list[float]:
    """Milliseconds from each change of state since a moment to the first picture of it.

    A node that does not answer for a while is drawn as such, and then as it was; that is no change.
    """
    found, matched = [], set()
    for node, state, seen_at in drawn:
        before = [
            (node, at)
            for at, each in wrote.get(node, ())
            if each == state and since <= at <= seen_at
        ]
        if before and before[-1] not in matched:
            matched.add(before[-1])
            found.append(1000 * (seen_at - before[-1][1]))
    return found


def figures(taken: list[float], made_up: dict[str, float], ratios: list[float]) -> dict[str, Any]:
    """The line."""
    return {
        "bench": "web",
        "update_ms": {
            "p50": round(percentile(taken, 0.5)),
            "p99": round(percentile(taken, 0.99)),
            "count": len(taken),
        },
        "frame_ms": {
            "operators": made_up["frame_ms_operators"],
            "servers": made_up["frame_ms_servers"],
        },
        "replica_cost": round(statistics.median(ratios), 3),
        "replica_cost_rounds": [round(each, 3) for each in ratios],
        "page_kb": made_up["page_kb"],
    }


def page(found: dict[str, Any], form: str) -> str:
    """The page of the results, with what the timeline looked like at the end of the failures."""
    update, frame = found["update_ms"], found["frame_ms"]
    return f"""# The page: how soon, how smooth, at what cost

`make bench BENCH=web{form}`, {date.today()}; {machine_text(found["machine"])}, load
{found["load"]}.

| what | measured | at most |
|---|---|---|
| from a change of state in a replica, by its own journal, to the picture of it, median | \
{update["p50"]} ms | |
| the same, p99 of {update["count"]} | {update["p99"]} ms | |
| processor time of script and layout, p99, 200 operators | {frame["operators"]} ms | 33 |
| the same, 1,000 servers of which everything changes | {frame["servers"]} ms | 33 |
| everything the page loads, over the wire | {found["page_kb"]} kB | 800 |

Processor time of the replicas per tuple without the page, over that with {VIEWERS} viewers: \
{found["replica_cost"]}, the median of {ROUNDS} alternated rounds (at least 0.95 is wanted).

The deployment is real: two sources of 500 tuples a second, two replicas, a client. The servers and
operators of the frames are made up. Whoever looks is told of changes five times a second.

![The timeline after the source was cut off and healed](web.png)
"""
