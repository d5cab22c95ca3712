"""The page of benchmark replace, from the run itself."""

from __future__ import annotations

from typing import Any

from benchmarks.machine import machine_text
from benchmarks.record import record
from benchmarks.replace_setting import BUCKET_SECONDS, PROTECTIONS

HEAD = """# Replace: lost for good

One deployment of real processes has a fragment for each protection: *active*, *passive*, *hybrid*,
and *continuous*, which is passive with its state in the output log, window by window. Their first
copies share a process, their second ones another. {rate:,} tuples a second come, {windows:,}
windows are open, a bucket is {bucket:g} s, X is {x:g} s. The process in which most copies run is
stopped, loses the directories of all its nodes, and is killed; its supervisor starts it anew, on
nothing.

*Rejoined* is a replica that is stable again, or a copy that holds the other one's state, counted
from when Spark was up. *Pause* is how much later the latest result of the partner was from then
until the next one after it had joined, than the latest of as many usual ones is at the median: two
cores run all of it, four jobs or more begin with each bucket, and which of them ends last is chance
(*usually late* has the tenth, the median and the ninetieth of a hundred usual ones, and what comes
with {losses} losses, one process after the other, is told by the median and the worst). A
*bystander* is the same query beside the same others in a process of which nothing is lost and which
lends nothing: its pause is chance, and what a process that starts takes of the cores. It is not
taken off. *Beside jobs* is for how long a job of the process ran while it made the state ready that
it lends. *Gap* is the longest time without a result from the loss until all is well, of which a
bucket is usual. What is lost or doubled is told by the right answer, which follows from the tuples'
numbers. But for pauses and jobs, the worst loss counts.
"""

TAIL = """
The bound is on the log of an entry point: {minutes:g} minutes of data are sent faster than real
time while one of two replicas is away. With `retire` nothing more is kept for it; with `block` the
source waits. The long failure is one of two sources that is cut off for {failure:g} s; its ratio is
of the medians of job times, in the last third of it or after everything was corrected, whichever is
greater, over those before. A control is the same query over the same sources, in a process of its
own from which nothing is cut off. Jobs this short take twice as long for seconds whenever the
machine does something else: the control's own ratio, to which nothing happens, says how much of the
first figure is that. In the second one each job is taken over the control's job of the same bucket,
which ran at the same moment, before the median is taken: what the machine was slower or quicker by
is in both. There were {before} jobs before, {late_in_the_failure} late in it and {after} after.
"""


def page_of(told: dict[str, Any], command: str) -> str:
    lines = [
        HEAD.format(
            rate=told["tuples_per_second"],
            windows=told["open_windows"],
            bucket=BUCKET_SECONDS,
            x=told["x_s"],
            losses=told["losses"],
        ),
        f"`{command}` on {machine_text(told['machine'])}, {told['seconds']:.0f} s in all,",
        "the figures as printed ([all of it](replace.json)).",
        "",
        "| | " + " | ".join(PROTECTIONS) + " | wanted |",
        "|---|" + "---|" * (len(PROTECTIONS) + 1),
    ]
    for what, key, wanted in (
        ("rejoined after, s", "rejoin_s", ""),
        ("partner's pause, ms", "partner_pause_ms", "at most a bucket's job"),
        ("its pause, the worst", "partner_pause_worst_ms", ""),
        ("its pauses", "partner_pauses_ms", ""),
        ("usually late, ms", "partner_usual_ms", ""),
        ("a bystander's pauses", "bystander_pauses_ms", ""),
        ("lent beside jobs, ms", "lent_beside_jobs_ms", ""),
        ("a bucket's job before, ms", "job_ms", ""),
        ("gap, ms", "gap_ms", f"at most {told['x_s'] * 1000:,.0f}"),
        ("lost", "lost", "0"),
        ("doubled", "doubled", "0"),
        ("differing", "differing", "0"),
        ("results", "results", ""),
    ):
        cells = [_cell(told[name][key]) for name in PROTECTIONS]
        lines.append(f"| {what} | " + " | ".join(cells) + f" | {wanted} |")
    jobs, control = (
        f"{one['before']:g} ms before, {one['late_in_the_failure']:g} late in the failure, "
        f"{one['after']:g} after"
        for one in (told["job_ms"], told["control_job_ms"])
    )
    rows = (
        ("kept for a replica that is away, over the bound", "kept_bytes_max", "at most 1.1"),
        (
            f"a job after a failure of {told['failure_s']:g} s, over before",
            "job_ms_after_long_failure_over_before",
            f"at most 1.2; {jobs}",
        ),
        (
            "the same, each job over a control's of its bucket",
            "job_ms_after_long_failure_over_before_beside_control",
            f"at most 1.2; the control's {control}",
        ),
        (
            "the control's own, by chance",
            "job_ms_after_long_failure_over_before_of_control",
            "nothing happens to it",
        ),
        (
            "longest gap in a rolling restart, over X",
            "rolling_restart_gap_over_x",
            f"at most 1; {told['rolling_restart_gap_s']:g} s",
        ),
    )
    lines += ["", "| | | |", "|---|---|---|"]
    lines += [f"| {what} | {told[key]:g} | {more} |" for what, key, more in rows]
    tail = TAIL.format(
        minutes=told["kept_minutes_of_data"],
        failure=told["failure_s"],
        **told["jobs"],
    )
    return "\n".join([*lines, tail])


def _cell(value: float | list[int]) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else f"{value:,}"


def record_page(told: dict[str, Any], options: str) -> None:
    arguments = f" ARGS='{options}'" if options else ""
    command = f"make bench BENCH=replace{arguments}"
    record(told, command, page=page_of(told, command))
