"""The page and the picture of benchmark faults, from the run itself."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from benchmarks.faults_deployment import OPEN_FILES, PROTECTIONS
from benchmarks.machine import machine_text
from benchmarks.record import record

HEAD = """# Faults: nothing stands still in silence

One deployment of real processes, with a load, is struck by one fault after the other while somebody
watches. It has a fragment for each protection: *none*, *active*, *passive*, *hybrid*, and
*continuous*, which is passive with its state in the output log, window by window. First copies
share a process, second ones another; entry point, clients and the supervisor are processes of
their own. Everything may have {files} open files, and its data is on a
tmpfs of 1 GiB. X is {x:g} s.

A *pair* is a kind of fault and a protection that it hit: the fragment's running copy was there, or
the fault was everywhere. *Recovered* is the time from the end of the fault (a kill ends at once)
until everything that had been sent by then has its stable result at a client; *silent* a stretch of
more than {silent:g} s (2 X + 5 s) without a result of an output and without an error in the status.

![Seconds until everything is stable again, by fault and protection](faults.png)
"""

TAIL = """
`eio-` and `enospc-` are planted where all writes of a process go through (`holdfast.disk`), for
6 s; `full-tmpfs` is real: the tmpfs is filled up to the last byte for 6 s, and emptied. `stop-` is
SIGSTOP for 2.5 X. `clock-` sets the clocks of all nodes by a minute. `memory-jvm` takes the JVM's
address space away. `restarts` are 50 kills of entry point and clients in a row. `messages` are
random and mutated calls from strangers and from callers who may produce or read and lie about their
names.
"""


def page_of(told: dict[str, Any], command: str) -> str:
    counts = ", ".join(f"{name} {count}" for name, count in told["by_protection"].items())
    rows = [
        ("pairs of fault and protection", told["faults"], f"{told['kinds']} kinds; {counts}"),
        ("silent", told["silent"], "0 wanted"),
        ("results or tuples lost", told["lost"], "0 wanted"),
        ("doubled", told["doubled"], "0 wanted"),
        ("differing from an undisturbed run", told["differing"], f"of {told['results']:,} results"),
        ("longest recovery, s", told["recovery_s_max"], ""),
        ("odd messages", told["fuzzed_messages"], f"{told['timed_out_messages']} timed out"),
        ("processes ended by a message", told["exits"], "0 wanted"),
        ("faults nobody recovered from", len(told["unrecovered"]), "0 wanted"),
    ]
    lines = [HEAD.format(files=OPEN_FILES, x=told["x_s"], silent=2 * told["x_s"] + 5)]
    lines += [
        f"`{command}` on {machine_text(told['machine'])}, {told['seconds']:.0f} s in all,",
        "the figures as printed ([all of it](faults.json)).",
        "",
        "| | | |",
        "|---|---|---|",
        *(f"| {what} | {value:,} | {more} |" for what, value, more in rows),
        "",
        "Seconds until everything is stable again, the longest of each pair:",
        "",
        "| fault | " + " | ".join(PROTECTIONS) + " |",
        "|---|" + "---|" * len(PROTECTIONS),
    ]
    for kind, by_name in told["recovery_s"].items():
        cells = [f"{by_name[name]:g}" if name in by_name else "–" for name in PROTECTIONS]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, TAIL])


def draw(told: dict[str, Any], figure: Figure) -> None:
    """A row for each kind, a mark for each protection."""
    axes = figure.subplots()
    kinds = list(told["recovery_s"])
    for number, name in enumerate(PROTECTIONS):
        places = [index for index, kind in enumerate(kinds) if name in told["recovery_s"][kind]]
        seconds = [told["recovery_s"][kinds[index]][name] for index in places]
        axes.scatter(seconds, [index + 0.12 * (number - 2) for index in places], s=14, label=name)
    axes.axvline(told["x_s"], color="0.8", zorder=0)
    axes.set_yticks(range(len(kinds)), kinds)
    axes.invert_yaxis()
    axes.set_xlabel("seconds until everything is stable again; the line is X")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def record_page(told: dict[str, Any], options: str) -> None:
    arguments = f" ARGS='{options}'" if options else ""
    command = f"make bench BENCH=faults{arguments}"
    height = 1.6 + 0.32 * len(told["recovery_s"])
    record(told, command, lambda figure: draw(told, figure), page_of(told, command), (9, height))
