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
process for a while, or cuts one copy off, because a program that burns CPU would hit all machines
at once; the paper's only slows down. And whatever a failure makes others do (a standby that wakes,
a backlog that is worked off) takes CPU from the rest, which makes every protection look worse under
failures than it would on machines of its own. Compare modes with each other, not milliseconds with
the paper's.

**What it does not show.** Passive and hybrid hardly differ in Fig. 4 and 7 to 9, because here Spark
is up for both and the passive copy keeps its engine; what hybrid saves is the start of Spark, and
that is measured in [failover](failover.md). Detection is of 5 spikes where the paper has 200: a
share of five says little, and no rate of false alarms should be taken from it. Figures 1 to 3 of
the paper, which motivate it with measurements of its machines, are not repeated.
"""

# Heartbeats, by whether the load is at least 90 %.
PAPER_DETECTED = {
    False: "few, hardly a false alarm",
    True: "nearly all, 144 ms, hardly a false alarm",
}


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
    yield "Machines that stand still 80 % of the time, independently, both do so 64 % of the time:"
    yield "then nobody can answer. The paper's overloaded machines still do, slowly."
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
    yield "four. A hybrid copy that wakes for nothing sends what the primary sends, too. Alarms"
    alarms = {rate: one["hybrid"]["false_alarms"] for rate, one in modes["traffic"].items()}
    counted = ", ".join(f"{count} at {rate}/s" for rate, count in alarms.items())
    yield f"about nothing while this was counted: {counted}."
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
            "rate x outage",
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
                f"{int(label.split()[0]) * one['hybrid']['outage_s']:,.0f}",
            ]
            for label, one in modes["switching"].items()
        ],
    )
    yield ""
    yield "Spark is up where the passive copy is, because hybrid copies share its process, and it"
    yield "keeps its engine once it has run; so its recovery is little longer here. Without that it"
    yield "takes [as long as Spark takes to start](failover.md)."
    yield ""
    yield "Paper: the time grows by 20 % from 1,000 to 7,000 elements/s; the traffic of the primary"
    yield "that does not answer is about rate times outage. Here tuples sent are all of the branch:"
    yield "its input and its output, from both copies."


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
                ran = mode == "passive" and not one["deployed"]
                cells.append(_parts(one) + (" \\*" if ran else ""))
                cells.append(_paper_parts(mode, interval if knob == "heartbeat" else 100))
            rows.append(cells)
        yield from _table(["interval", "passive", "paper", "hybrid", "paper"], rows)
        yield ""
    yield "The paper's columns are made of what its text says: detection takes three intervals for"
    yield "passive and one for hybrid, redeployment 465 ms against 113 ms for resuming, sending"
    yield "and processing again 240 ms against 104 ms; the checkpoint interval changes little. Here"
    yield "resend has a bucket in it, 600 ms, and the job of the last fragment. \\*: this passive"
    yield "copy had run before, and had its engine still."


def _parts(one: Found) -> str:
    """A recovery and what it was made of."""
    if "detect_ms" not in one:
        return f"{one['recovery_ms']:,.0f} (not split)"
    parts = ", ".join(f"{one[f'{part}_ms']:,.0f}" for part in ("detect", "resume", "resend"))
    return f"{one['recovery_ms']:,.0f} ({parts})"


def _paper_parts(mode: str, heartbeat_ms: int) -> str:
    """The same for the paper."""
    detect = heartbeat_ms * (3 if mode == "passive" else 1)
    parts = (detect, 465, 240) if mode == "passive" else (detect, 113, 104)
    return f"{sum(parts):,} ({', '.join(str(each) for each in parts)})"


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


def _checkpoints(traffic: Found) -> Iterator[str]:
    yield "## Operators in a fragment (Fig. 11)"
    yield ""
    yield "Half of the operators have state."
    yield ""
    yield from _table(
        ["operators", "checkpoint tuples/s"],
        [[str(count), f"{sent:,.0f}"] for count, sent in operators(traffic).items()],
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
            for name, one in checkpointings(traffic).items()
        ],
    )
    yield ""
    yield "Paper: sweeping is 4 times faster and sends a tenth of the others. There a checkpoint"
    yield "has the input queues, too, unless it is sweeping. Here none has them, and in all three"
    yield "only what changed since the last one travels."


def _detectors(told: Found) -> Iterator[str]:
    yield from _checkpoints(told["detectors"]["traffic"])
    yield ""
    yield "## Detection and false alarms (Fig. 12, 13)"
    yield ""
    yield "For a second at a time, another program takes this share of the one core of a machine,"
    yield "as the CPU quota of a container deals it out. Detected spikes, delay of the detection,"
    yield "false alarms among all alarms."
    yield ""
    rows = []
    for level, one in told["detectors"]["levels"].items():
        cells = [
            f"{each['detection_ratio']:.0%} of {each['spikes']}, {each['detection_ms']:,.0f} ms, "
            f"{each['false_alarm_ratio']:.0%} of {each['alarms']}"
            for each in (one["heartbeat"], one["benchmark"])
        ]
        paper = [PAPER_DETECTED[float(level.rstrip("%")) >= 90], "100 %, 132 ms, more than 15 %"]
        rows.append([level, cells[0], paper[0], cells[1], paper[1]])
    yield from _table(["load", "heartbeat", "paper", "benchmarking", "paper"], rows)


def _table(heads: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


SECTIONS = {"modes": _modes, "variants": _variants, "detectors": _detectors}
