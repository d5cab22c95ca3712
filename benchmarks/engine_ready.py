"""Part of benchmark engine: Holdfast beside Flink, when all the input is there.

Flink has no buckets: it takes what is there as fast as it can. So does a replica of Holdfast that
has fallen behind: buckets that are ready go as one job (up to 500 of them). Here it is given seven
at a time, or one of 300,000 tuples: windows have ten, so that jobs do not end where they do, and
state is read and written. Both read the same tuples from Parquet files and sum in the same
windows, with a heap of 4 GiB. Flink has the whole JIT and the parallel collector, Holdfast's JVM
what a replica by itself would have on the machine (``holdfast.spark.jvm``): on two cores the first
tier and the serial collector. Flink throws its results away, Holdfast hands them to Python. Flink
goes through a case once before it is timed, and the first third of the tuples is timed for neither.
"""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.engine_inputs import WINDOW_S, Case, write_halves
from benchmarks.flink import find_flink

if TYPE_CHECKING:
    from benchmarks.engine import Child

TUPLES_AT_ONCE = 210_000
FLINK_JVM = "-Xmx4g -XX:+UseParallelGC"


def flink_environment() -> dict[str, str]:
    """The JVM that PyFlink starts takes its options from here."""
    return {**os.environ, "JVM_ARGS": FLINK_JVM}


def flink_command(quick: bool) -> list[str] | None:
    """How Flink's process is started; None, and it is said why, where there is no Flink."""
    python = find_flink(quick)
    return None if python is None else [str(python), "-m", "benchmarks.engine_flink"]


def same_rows(case: Case, root: Path, holdfast: Child, flink: Child) -> None:
    """Of every window that ended, the same rows; Flink also tells of those that the input cut."""
    ours = holdfast.run(case, root, rows=True)["rows"]
    ended = {start for start, *_ in ours}
    halves = str(write_halves(case, root))
    told = flink.run(case, root, rows=True, halves=halves, window_s=WINDOW_S)["rows"]
    theirs = [row for row in told if row[0] in ended]
    if not ours or ours != theirs:
        raise SystemExit(f"Flink gave {len(theirs)} rows, Holdfast {len(ours)}, not the same")
    print(f"check: {len(ours)} result rows, the same from Flink", flush=True)


def compare_ready(
    case: Case, root: Path, holdfast: Child, flink: Child, rounds: int
) -> dict[str, float]:
    """Both in turns; the ratio of each round, and their median."""
    at_once = max(1, TUPLES_AT_ONCE // case.tuples)
    halves = str(write_halves(case, root))
    found = []
    flink.run(case, root, halves=halves, window_s=WINDOW_S)
    for _ in range(rounds):
        theirs = flink.run(case, root, halves=halves, window_s=WINDOW_S)["tuples_s"]
        ours = holdfast.run(case, root, at_once=at_once)["tuples_s"]
        one = {"flink_tuples_s": theirs, "holdfast_tuples_s": ours, "flink_ratio": ours / theirs}
        found.append(one)
        print(f"{case.name}: {json.dumps(one)}", flush=True)
    return {key: statistics.median(each[key] for each in found) for key in found[0]}
