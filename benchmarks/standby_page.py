"""The page of benchmark standby: each figure of the paper, the paper's number beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.machine import machine_text
from benchmarks.standby_report import by_knob, checkpointings, operators

Found = dict[str, Any]

HEAD = """# Standby, beside the paper

The experiments of "A Hybrid Approach to High Availability in Stream Processing Systems" on a chain
of 8 operators in 4 fragments. [benchmarks/standby.py](../../benchmarks/standby.py) and the files
beside it say how each is done.

![One panel for each figure of the paper](standby.png)

**What two cores do to it.** The paper has a machine with four cores for every fragment and every
standby; here all of them share two cores. A *machine* is a process with a Spark driver. Three
things follow. A bucket is 500 ms, so that all drivers together leave some of the CPU free: a delay
starts at half of that plus four Spark jobs, not at the paper's 90 ms. A transient failure stops one
process for a while, because a program that burns CPU would hit all machines at once. And whatever a
failure makes others do (a standby that wakes, a backlog that is worked off) takes CPU from the
rest, which makes every protection look worse under failures than it would on machines of its own.
Compare modes with each other, not milliseconds with the paper's.
"""


def page(told: Found, command: str) -> str:
    """Everything that was measured, as a page."""
    lines = [
        HEAD,
        f"`{command}`, {machine_text(told['machine'])}, as printed ([all of it](standby.json)).",
    ]
    for name, section in SECTIONS.items():
        if name in told:
            lines += ["", *section(told)]
    counted = [one for one in told.values() if isinstance(one, dict) and "wrong" in one]
    if counted:
        lines += ["", f"Elements lost or doubled: {told['wrong']}."]
    lines.append("")
    return "\n".join(lines)


def _modes(told: Found) -> Iterator[str]:
    modes = told["modes"]
    yield "## Delay under transient failures (Fig. 4)"
    yield ""
    yield "Mean delay in ms, by the share of time the machines of both copies are failed."
    yield ""
    fractions = list(next(iter(modes["delay"].values())))
    heads = [f"{100 * float(each):.0f} %" for each in fractions]
    yield from _table(["", *heads, "paper"], _delay_rows(modes["delay"]))
    yield ""
    yield from _shared(modes)
    yield ""
    yield "## Traffic (Fig. 6)"
    yield ""
    yield "Tuples sent to, by and between the copies, over those without protection (bytes)."
    yield ""
    yield from _table(
        ["elements/s", "passive", "active", "hybrid"],
        [
            [
                rate,
                *(
                    f"{one[mode]['tuples_over_none']} ({one[mode]['bytes_over_none']})"
                    for mode in ("passive", "active", "hybrid")
                ),
            ]
            for rate, one in modes["traffic"].items()
        ]
        + [["paper", "about 1.1", "about 4", "about 1.1"]],
    )
    yield ""
    yield "An active reader follows one replica and changes when it must, instead of taking all"
    yield "from both, so both replicas are sent the input and one sends the output: 1.5 times, not"
    yield "four. A hybrid copy that wakes for nothing sends what the primary sends, too: on a busy"
    share = told["checkpoints_hybrid_over_none"]
    yield "machine false alarms cost more than checkpoints, which are at most"
    yield f"{share:.1%} of the traffic without protection here."
    yield "Wanted: passive and hybrid at most 1.15."
    yield ""
    yield "## Switching and rolling back (Fig. 9, 10)"
    yield ""
    yield "A machine stands still. Times in ms."
    yield ""
    yield from _table(
        [
            "elements/s, outage",
            "passive recovery",
            "hybrid recovery",
            "detect",
            "resume",
            "resend",
            "roll back",
            "tuples sent",
        ],
        [
            [
                label,
                f"{one['passive']['recovery_ms']:,.0f}",
                *(
                    f"{one['hybrid'].get(f'{part}_ms', 0):,.0f}"
                    for part in ("recovery", "detect", "resume", "resend", "rollback")
                ),
                f"{one['hybrid']['tuples_sent']:,.0f}",
            ]
            for label, one in modes["switching"].items()
        ],
    )
    yield ""
    yield "A passive copy that has run once keeps its engine, so only the first row has a"
    yield "deployment; Spark is up there in any case, because hybrid copies share the process."
    yield "Without that a passive copy takes [as long as Spark takes to start](failover.md)."
    yield ""
    yield "Paper: recovery of hybrid about 1/3 of passive; resume 113 ms (redeployment 465 ms for"
    yield "passive), resend 104 ms (240 ms); traffic grows with rate times outage."


def _delay_rows(delay: Found) -> list[list[str]]:
    paper = {
        "none": "grows with it",
        "passive": "grows with it, above none",
        "active": "about 90 ms, flat",
        "hybrid": "flat, a little above active",
    }
    return [
        [mode, *(f"{one['mean_ms']:,.0f}" for one in points.values()), paper[mode]]
        for mode, points in delay.items()
    ]


def _variants(told: Found) -> Iterator[str]:
    variants = told["variants"]
    for knob, title in (
        ("heartbeat", "## Recovery by heartbeat interval (Fig. 7)"),
        ("checkpoint_interval", "## Recovery by checkpoint interval (Fig. 8)"),
    ):
        yield title
        yield ""
        yield "In ms: all (detect, resume, resend)."
        yield ""
        rows = []
        for interval, pair in sorted(by_knob(variants, knob).items()):
            cells = [f"{interval} ms"]
            for mode in ("passive", "hybrid"):
                one = variants["recovery"][pair[mode]]
                parts = ", ".join(
                    f"{one.get(f'{part}_ms', 0):,.0f}" for part in ("detect", "resume", "resend")
                )
                known = "detect_ms" in one
                cells.append(f"{one['recovery_ms']:,.0f} ({parts if known else 'not split'})")
            rows.append(cells)
        yield from _table(["interval", "passive", "hybrid"], rows)
        yield ""
    yield "Paper: detection takes one interval for hybrid and three for passive, and is most of the"
    yield "recovery; the checkpoint interval changes little."
    yield ""
    yield "## Operators in a fragment (Fig. 11)"
    yield ""
    yield "Half of the operators have state."
    yield ""
    yield from _table(
        ["operators", "checkpoint tuples/s"],
        [[str(count), f"{sent:,.0f}"] for count, sent in operators(variants).items()],
    )
    yield ""
    yield "Paper: grows about linearly."
    yield ""
    yield "## Ways to take checkpoints"
    yield ""
    yield from _table(
        ["", "tuples/s", "bytes/s", "ms for each"],
        [
            [
                name,
                f"{one['checkpoint_tuples_s']:,.0f}",
                f"{one['checkpoint_bytes_s']:,.0f}",
                f"{one['checkpoint_ms']:,.1f}",
            ]
            for name, one in checkpointings(variants).items()
        ],
    )
    yield ""
    yield "Paper: sweeping is 4 times faster and sends a tenth of the others. There a checkpoint"
    yield "has the input queues, too, unless it is sweeping. Here none has them, and in all three"
    yield "only what changed since the last one travels."


def _shared(modes: Found) -> Iterator[str]:
    yield "## Three primaries with one secondary (Fig. 5)"
    yield ""
    yield "Mean delay in ms, by the share of time each primary is failed."
    yield ""
    heads = [f"{100 * float(each):.0f} %" for each in modes["shared"]]
    rows = [
        [name, *(f"{one['mean_ms']:,.0f}" for one in modes[name].values())]
        for name in ("shared", "dedicated")
        if name in modes
    ]
    yield from _table(["secondary", *heads], rows)
    yield ""
    yield "Paper: less than 25 % more up to 20 % of the time, about 80 % more at 30 %."


def _detectors(told: Found) -> Iterator[str]:
    yield "## Detection and false alarms (Fig. 12, 13)"
    yield ""
    yield "Load on the one core of a machine, made by so many programs that count, each for a share"
    yield "of the time. Detected spikes, delay of the detection, false alarms among all alarms."
    yield ""
    rows = []
    for level, one in told["detectors"]["levels"].items():
        cells = [
            f"{each['detection_ratio']:.0%}, {each['detection_ms']:,.0f} ms, "
            f"{each['false_alarm_ratio']:.0%} of {each['alarms']}"
            for each in (one["heartbeat"], one["benchmark"])
        ]
        rows.append([level, *cells])
    yield from _table(["load", "heartbeat", "benchmarking"], rows)
    yield ""
    yield "Paper: heartbeat detects few loads below 90 % and nearly all above, after 144 ms, with"
    yield "hardly a false alarm; benchmarking all from 60 % on, after 132 ms, with more than 15 %"
    yield "false alarms."


def _table(heads: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


SECTIONS = {"modes": _modes, "variants": _variants, "detectors": _detectors}
