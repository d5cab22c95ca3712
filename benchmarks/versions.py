"""This version beside an earlier one: the same benchmarks, in turn, on the same machine.

Each benchmark runs in its short form, the earlier version and this one in turn, twice with the
order reversed, so that what else the machine does counts for both. The earlier version runs its own
benchmarks, from a copy of the repository at that commit with an environment of its own.

    make bench BENCH=versions ARGS="--against COMMIT"
    make bench BENCH=versions ARGS="--against COMMIT --quick"     each once
    make bench BENCH=versions ARGS="--against COMMIT --only engine,cec"
    make bench BENCH=versions ARGS="--against COMMIT --record"    and docs/results/versions.*

Each benchmark is recorded as soon as it is measured, beside what earlier runs recorded of others;
this version's own page of that benchmark, too.

`slower` is what this version needs over what the earlier one needs: above 1 it is slower. Where
the two do not have the same to do, what they had is beside it, and a figure for the same work.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.machine import describe_machine, machine_text
from benchmarks.record import record, recorded

ROOT = Path(__file__).resolve().parent.parent
COMMAND = 'make bench BENCH=versions ARGS="--against {commit}{more} --record"'
# No benchmark's short form takes this long; one that hangs must not hold up the others.
_TIMEOUT_S = 1_200


@dataclass(frozen=True)
class Measure:
    """One figure of a benchmark, by its way through what the benchmark prints.

    is_work  not what it took, but what there was to do.
    """

    path: str
    more_is_better: bool = False
    is_work: bool = False

    def of(self, printed: dict[str, Any]) -> float | None:
        found: Any = printed
        for part in self.path.split("/"):
            found = found.get(part) if isinstance(found, dict) else None
        return float(found) if isinstance(found, int | float) else None


@dataclass(frozen=True)
class SameLoad(Measure):
    """What reading so many window states took, in the middle of all recoveries of cec.

    Its ``ec_load_s`` is that of a single recovery, and of whatever extent that had.
    """

    frames: int = 180_000

    def of(self, printed: dict[str, Any]) -> float | None:
        figures = printed.get("figures", {})
        runs = [run for each in ("6", "7", "8 and 9") for run in figures.get(each, {}).values()]
        each_s = [run["ec_load_s"] / run["extent"] for run in runs if run["extent"]]
        return round(self.frames * median(each_s), 4) if each_s else None


def _speed(path: str) -> Measure:
    return Measure(path, more_is_better=True)


MEASURES = {
    "engine": (
        Measure("details/latency/holdfast_median_ms"),
        _speed("details/100k/holdfast_tuples_s"),
        _speed("details/1m/holdfast_tuples_s"),
    ),
    "streams": (
        _speed("append_mb_s"),
        _speed("replay_mb_s"),
        _speed("flight_mb_s"),
        Measure("e2e_p50_ms"),
        Measure("e2e_p99_ms"),
    ),
    "failover": (
        Measure("passive_gap_ms"),
        Measure("active_gap_ms"),
        Measure("hybrid_gap_ms"),
    ),
    "cec": (
        _speed("figures/5/fast/continuous/tuples_s"),
        _speed("figures/5/slow/continuous/tuples_s"),
        _speed("figures/5/items/continuous/tuples_s"),
        Measure("ec_load_s"),
        SameLoad("EC-load of 180,000 frames, median of all recoveries, s"),
        Measure("recovered_s"),
        Measure("figures/deployment/replay_tuples", is_work=True),
        Measure("figures/deployment/extent", is_work=True),
        Measure("figures/deployment/restart_s"),
        Measure("figures/structured/holdfast_s"),
    ),
    "dpc-policies": (
        Measure("delay_new_max_over_x"),
        Measure("switch_ms"),
        Measure("notice_ms"),
        Measure("stops/notice_ms"),
        Measure("stops/notice_least_ms"),
    ),
    "dpc-reconcile": (_speed("redo_tuples_s"),),
    "session": (Measure("session/session_s"), Measure("session/first_answer_s")),
}


# Beside the benchmark itself: what each version runs of this one's benchmarks.
BESIDE = {"dpc-policies": ("versions_notice.py", "10"), "session": ("versions_session.py", "5")}
# Of which no version has a benchmark of its own.
ALONE = frozenset({"session"})


def earlier_version(commit: str, directory: Path) -> Path:
    """A copy of the repository at a commit, with its environment."""
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", ROOT, directory], check=True)
    subprocess.run(["git", "checkout", "--quiet", commit], cwd=directory, check=True)
    subprocess.run(["make", "classes"], cwd=directory, check=True, stdout=sys.stderr)
    return directory


def run_one(root: Path, bench: str, record_page: bool) -> dict[str, Any]:
    """What a benchmark prints at its end, as its own version runs it; nothing if it fails."""
    # Neither the environment nor the path of this process is the other version's.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    }
    command = ["make", "--no-print-directory", "bench", f"BENCH={bench}"]
    command.append("ARGS=--quick --record" if record_page else "ARGS=--quick")
    began = time.monotonic()
    printed: dict[str, Any] = {}
    try:
        if bench not in ALONE:
            done = subprocess.run(
                command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True,
                stderr=subprocess.DEVNULL, timeout=_TIMEOUT_S, check=False,
            )  # fmt: skip
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            printed = json.loads(lines[-1]) if lines else {}
        if bench in BESIDE:
            printed |= run_beside(root, environment, *BESIDE[bench])
    except subprocess.TimeoutExpired:
        printed = {}
    printed["took_s"] = round(time.monotonic() - began, 1)
    return printed


def run_beside(root: Path, environment: dict[str, str], file: str, *more: str) -> dict[str, Any]:
    """What a benchmark of this version prints about the version at ``root``."""
    command = [root / "scripts" / "run", root / ".venv" / "bin" / "python"]
    done = subprocess.run(
        [*command, ROOT / "benchmarks" / file, *more],
        cwd=root, env={**environment, "PYTHONPATH": f"{root / 'src'}:{root}"},
        stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return found


def compare(bench: str, before: Path, rounds: int, record_page: bool) -> list[dict[str, Any]]:
    """Every figure of a benchmark: of both versions, and by how much this one is slower."""
    runs: dict[Path, list[dict[str, Any]]] = {before: [], ROOT: []}
    for round_ in range(rounds):
        for root in (before, ROOT) if round_ % 2 == 0 else (ROOT, before):
            runs[root].append(run_one(root, bench, record_page and root is ROOT))
    rows = []
    for measure in MEASURES[bench]:
        old, new = (
            [value for value in map(measure.of, runs[root]) if value is not None]
            for root in (before, ROOT)
        )
        row: dict[str, Any] = {"bench": bench, "figure": measure.path, "before": old, "now": new}
        if measure.is_work:
            row["slower"] = "work, not time"
        elif old and new and min(*old, *new) > 0:
            ratio = median(new) / median(old)
            row["slower"] = round(1 / ratio if measure.more_is_better else ratio, 3)
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


NOTES = """Where like must be compared with like:

- `ec_load_s` is what a single recovery of the benchmark took to read its window states: that of the
  smallest extent above 180,000 frames, which is another one in each version. For the same number of
  frames, over all recoveries of the run, it is the figure below it.
- `recovered_s` is that of one killed replica, which is to be back within 2 s. What it has to
  compute again is whatever the version thinks fits into these 2 s: the quicker its jobs, the more.
  `restart_s` has the start of the process and of Spark with it, until the replica is stable.
- `session_s` is from before the first import until a session is there, `first_answer_s` until Spark
  has counted three rows in it; medians of five processes each, by the same code in both versions.
- `notice_ms` is the median of the few changes after two stops. A stop is noticed at once, or with
  the next heartbeat, 100 ms later: `stops` are ten of them, by the same code in both versions.
"""


def page(summary: dict[str, Any]) -> str:
    lines = "\n".join(
        f"| {row['bench']} | {row['figure']} | {row['before']} | {row['now']} "
        f"| {row.get('slower', 'not measured')} |"
        for row in summary["rows"]
    )
    runs = "\n".join(
        f"- {bench}: `{run['command']}`, {run['seconds']} s, on {machine_text(run['machine'])}"
        for bench, run in summary["runs"].items()
    )
    return f"""# This version beside an earlier one

Commit `{summary["against"]}` and this version in turn, each benchmark in its short form as its own
version has it. *slower* is what this version needs over what the earlier one needed, by the
medians; above 1 it is slower. *Work, not time* is what there was to do,
where versions differ in it.

| benchmark | figure | before | now | slower |
|---|---|---|---|---|
{lines}

{NOTES}
As it was run:

{runs}
"""


def record_bench(bench: str, against: str, rows: list[dict[str, Any]], run: dict[str, Any]) -> None:
    """Put what was measured of one benchmark in the place of what an earlier run found of it."""
    earlier = recorded("versions")
    if earlier.get("against") != against:
        earlier = {"rows": [], "runs": {}}
    found = [row for row in earlier["rows"] if row["bench"] != bench] + rows
    kept = sorted(found, key=lambda row: list(MEASURES).index(row["bench"]))
    summary = {
        "bench": "versions",
        "against": against,
        "slower": {f"{row['bench']}: {row['figure']}": row.get("slower") for row in kept},
        "rows": kept,
        "runs": earlier["runs"] | {bench: run},
    }
    record(summary, run["command"], page=page(summary))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="COMMIT", required=True)
    parser.add_argument("--only", default=",".join(MEASURES), help="benchmarks, with commas")
    parser.add_argument("--quick", action="store_true", help="each once, instead of twice")
    parser.add_argument("--copy", type=Path, help="where the earlier version is already")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    slower: dict[str, float | str | None] = {}
    started = time.monotonic()
    with TemporaryDirectory() as temporary:
        before = options.copy or earlier_version(options.against, Path(temporary) / "before")
        for bench in options.only.split(","):
            machine, began = describe_machine(), time.monotonic()
            rows = compare(bench, before, 1 if options.quick else 2, options.record)
            slower |= {f"{row['bench']}: {row['figure']}": row.get("slower") for row in rows}
            run = {
                "command": COMMAND.format(
                    commit=options.against,
                    more=f" --only {bench}{' --quick' if options.quick else ''}",
                ),
                "seconds": round(time.monotonic() - began, 1),
                "machine": machine,
            }
            if options.record:
                record_bench(bench, options.against, rows, run)
    seconds = round(time.monotonic() - started, 1)
    print(json.dumps({"bench": "versions", "against": options.against, "slower": slower,
                      "seconds": seconds}))  # fmt: skip


if __name__ == "__main__":
    main()
