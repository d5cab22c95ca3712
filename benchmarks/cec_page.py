"""The page of benchmark cec: figures 5 to 9 of the paper, the paper's number beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from benchmarks.cec_figures import PAPER_Q, PAPER_RESPONSE_S, PAPER_U
from benchmarks.machine import machine_text

Found = dict[str, Any]

HEAD = """# Continuous eventual checkpointing, beside the paper

The experiments of "CEC: Continuous Eventual Checkpointing for Data Stream Processing Operators":
averages of prices by item over a count of its sales, tuples of 100 bytes. *Fast* windows have one
sale, *slow* ones 1,000, both of two items; *items* are 100,000 with windows of 10 sales, some
90,000 of them open. Input comes as fast as it is taken, in buckets of 30,000 tuples.
[How it works](../design/cec.md).

With two items there are hardly any window states to write, so *fast* and *slow* say little about
what writing them costs; ratios above 1 there are noise. *items* is the workload that writes, and
the ratio to look at.

![One panel for each figure of the paper](cec.png)
"""

FAIR = """
How the comparison is made. Both have the same query state (a count and a sum for each of 100,000
items), take sales of the same distribution in buckets of about 30,000, and are warm: the process is
up, the job has run many times. The clock runs from the start of the recovery (Holdfast: the log is
opened and everything else is lost; Structured Streaming: `start()` of the stopped query on its
checkpoint) to the end of the first 30,000 sales after it. Structured Streaming has two state
partitions, RocksDB with changelog checkpointing, no adaptive planning, and reads only the two
columns it needs from uncompressed Parquet files on the same disk; Holdfast reads its log and the
100-byte tuples from the log in front of it. Medians of all restarts.
"""


def page_of(told: Found, command: str) -> str:
    """Everything that was measured, as a page."""
    return "\n".join(
        [
            HEAD,
            f"`{command}` on {machine_text(told['machine'])},",
            f"{told['seconds']:.0f} s in all, the figures as printed ([all of it](cec.json)). Grey",
            "in the picture, and *paper* in the tables, is what the paper says of its machines.",
            "",
            *_bars(told),
            *_throughput(told["figures"]),
            *_targets(told["figures"]),
            *_periods(told["figures"]),
            *_structured(told["figures"]["structured"]),
            *_deployment(told["figures"]["deployment"]),
        ]
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    names = list(head)
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    for row in rows:
        yield (
            "| " + " | ".join(f"{each:,}" if _is_number(each) else str(each) for each in row) + " |"
        )
    yield ""


def _is_number(each: object) -> bool:
    return isinstance(each, int | float)


def _bars(told: Found) -> Iterator[str]:
    each_q = ", ".join(f"{each}" for each in told["extent_over_q_each"].values())
    rows = [
        ("throughput, opened windows only, over none", told["throughput_ratio_open_only"], "0.9"),
        ("throughput, continuous, over none", told["throughput_ratio_continuous"], "0.9"),
        ("extent over Q at Q = 2, 4, 8 times the open windows", each_q, "at most 1.0"),
        ("EC-load of 180,000 frames, s (paper: 5)", told["ec_load_s"], "at most 0.5"),
        ("recovery over Structured Streaming's", told["recovery_ratio"], "at most 0.5"),
        ("longest stand-still for a checkpoint, ms", told["checkpoint_pause_ms_max"], ""),
        (
            f"recovery of a deployment that says {told['recover_within_s']:g} s, s",
            told["recovered_s"],
            f"at most {told['recover_within_s']:g}",
        ),
    ]
    yield from _table(("", "here", "wanted"), rows)


def _throughput(figures: Found) -> Iterator[str]:
    yield "## What it costs (Fig. 5)"
    yield ""
    yield "Tuples a second, and the ratio to no checkpoints: two buckets of each mode in turn, the"
    yield "median of the turns. *Net* makes the window states and writes them nowhere."
    yield ""
    modes = ("native", "open/net", "open/disk", "continuous")
    rows = [
        (name, *(f"{found[mode]['tuples_s']:,} ({found[mode]['ratio']})" for mode in modes))
        for name, found in figures["5"].items()
    ]
    rows.append(("paper", "1.0", "above 0.9", "as net", ""))
    yield from _table(("windows", "none", "opened, net", "opened, disk", "continuous"), rows)


def _targets(figures: Found) -> Iterator[str]:
    yield "## The targets Q and U (Fig. 6, 7)"
    yield ""
    yield "Paper in brackets, where its text has a number. The extent is that of the recovery."
    yield ""
    for name, paper, key in (("Q / open windows", PAPER_Q, "6"), ("U, tuples", PAPER_U, "7")):
        head = (name, "states checked", "extent", "EC-load s", "replayed MB", "replay s")
        rows = [
            (
                f"{int(target):,}",
                found["checks"],
                _beside(found["extent"], paper["extent"], int(target)),
                _beside(found["ec_load_s"], paper["ec_load_s"], int(target)),
                _beside(found["replay_mb"], paper["replay_mb"], int(target)),
                found["replay_s"],
            )
            for target, found in figures[key].items()
        ]
        yield from _table(head, rows)


def _beside(ours: float, paper: Mapping[int, float], target: int) -> str:
    return f"{ours:,} ({paper[target]:,})" if target in paper else f"{ours:,}"


def _periods(figures: Found) -> Iterator[str]:
    yield "## The period (Fig. 8, 9)"
    yield ""
    yield "CI is 10 ms, Q the number of open windows, which is out of reach, so that there is"
    yield "always something to write. Response time is how long a window stays open."
    yield ""
    rows: list[tuple[object, ...]] = [
        (
            period,
            _beside(found["response_s"], PAPER_RESPONSE_S, int(period)),
            found["extent"],
            found["pause_ms_max"],
        )
        for period, found in figures["8 and 9"].items()
    ]
    rows.append(("none", f"{figures['response_s without checkpoints']} (16.5)", "", ""))
    yield from _table(("CP ms", "response s", "extent", "longest pause ms"), rows)


def _structured(found: Found) -> Iterator[str]:
    yield "## Beside Structured Streaming"
    yield ""
    within = found["recover_within_s"]
    every = ", ".join(f"{each:g}" for each in found["structured_all_s"])
    ours = ", ".join(f"{each:g}" for each in found["holdfast_all_s"])
    yield f"`recover_within` is {within:g} s. Holdfast took {found['holdfast_s']} s ({ours}),"
    yield f"Structured Streaming {found['structured_s']} s ({every})."
    yield FAIR


def _deployment(found: Found) -> Iterator[str]:
    within, windows = found["recover_within_s"], found["open_windows"]
    yield "## A killed replica"
    yield ""
    yield f'A deployment with `recover_within = "{within:g} seconds"` takes 20,000 tuples a second.'
    yield f"Its replica is killed with SIGKILL when {windows:,} windows are open. It expected a"
    yield f"recovery to take {found['expected_s']} s; the restarted process read"
    yield f"{found['extent']:,} frames in {found['ec_load_s']} s and computed"
    yield f"{found['replay_tuples']:,} tuples again in {found['replay_s']} s. With the start of the"
    yield f"process and of Spark, it was stable again after {found['restart_s']} s."
    yield ""
