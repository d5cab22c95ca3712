"""Lost for good: replicas that lost everything join again, and nobody waits or keeps for ever.

    make bench BENCH=replace               a failure of ten minutes, five losses; 20 minutes
    make bench BENCH=replace ARGS=--quick  three losses, within four minutes
    make bench BENCH=replace ARGS='--quick --only lost --losses 4'  one part, and more of it

Real processes, 3,000 tuples a second, 100,000 open windows. One deployment has a fragment for each
protection (replace_setting.py); a process is lost with its directories (replace_lost.py), and
all are restarted one after the other. Then a failure lasts long (replace_failure.py), and an entry
point keeps for somebody who is away, up to a bound (replace_kept.py).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.replace_failure import fail_long
from benchmarks.replace_jobs import job_totals
from benchmarks.replace_kept import keep
from benchmarks.replace_lost import (
    Figures,
    Loss,
    Tell,
    pause_us,
    replace,
    restart_all,
    running_in,
    until,
    wait_well,
)
from benchmarks.replace_setting import (
    BYSTANDERS,
    PROCESSES,
    PROTECTIONS,
    TUPLES_PER_SECOND,
    WINDOWS,
    X_SECONDS,
    Sales,
    of_two_sources,
    protected,
)
from benchmarks.replace_watch import Reader
from benchmarks.standby_chain import now_us
from holdfast.cluster.supervisor import Supervisor
from holdfast.producer import Producer
from holdfast.testing.deployed import Load, supervised

MINUTES_KEPT = 12.0
BOUND_BYTES = 64_000_000
PARTS = ("lost", "failure", "kept")
# Of how late results usually are.
QUANTILES = (0.1, 0.5, 0.9)
Totals = dict[str, tuple[float, float]]


def lose_and_restart(
    directory: Path, sales: Sales, rate: int, calm_seconds: float, losses: int, tell: Tell
) -> Figures:
    """A process of a deployment with every protection is lost, once or more often; then all are
    restarted."""
    deployment = protected(directory)
    with supervised(deployment, tell) as supervisor:
        opening = Producer.of(deployment.path, "sales", name="opening")
        opening.send(sales.rows(0, sales.opening))
        opening.close()
        outputs = (*PROTECTIONS, *BYSTANDERS.values())
        readers = {name: Reader(deployment, name, f"watch-{name}") for name in outputs}
        load = Load(deployment, "sales", sales.later, rate)
        began = time.monotonic()
        try:
            wait_results(readers)
            wait_well(supervisor)
            windows = sales.open_after(sales.opening + load.sent)
            tell(f"everything is well, {windows:,} windows are open")
            lost = [_lose_next(supervisor, readers, calm_seconds, tell) for _ in range(losses)]
            time.sleep(calm_seconds)
            rolling = restart_all(supervisor, readers, tell)
            sent_rate = load.sent / (time.monotonic() - began)
            sent = sales.opening + load.stop()
            wait_results(readers)
        finally:
            for reader in readers.values():
                reader.close()
    found = {name: of_all([one[name] for one in lost]) for name in PROTECTIONS}
    for name in PROTECTIONS:
        reader = readers[name]
        found[name] |= asdict(reader.compare(sales, sent)) | {"broken": reader.broken}
        tell(f"{name}: {found[name]}")
    counts = {
        "losses": losses,
        "tuples": sent,
        "tuples_per_second": round(sent_rate),
        "open_windows": windows,
    }
    return {**found, **rolling, **counts}


def wait_results(readers: dict[str, Reader]) -> None:
    """Until what has been sent by now has its stable results."""
    reached = now_us()
    until("stable results", lambda: all(one.stable_until > reached for one in readers.values()))


def _lose_next(
    supervisor: Supervisor, readers: dict[str, Reader], calm_seconds: float, tell: Tell
) -> dict[str, Loss]:
    """Lose the process in which most copies run, after a calm stretch."""
    before, quiet_since = _job_totals(supervisor), now_us()
    time.sleep(calm_seconds)
    jobs_ms = _mean_ms(before, _job_totals(supervisor))
    process = max(PROCESSES, key=lambda name: running_in(supervisor, name))
    found = replace(supervisor, readers, process, quiet_since, tell)
    wait_well(supervisor)
    for name, loss in found.items():
        copies = [jobs_ms.get(f"{name}-{number}", 0.0) for number in (1, 2)]
        loss.figures["job_ms"] = max(copies)
    return found


def _job_totals(supervisor: Supervisor) -> Totals:
    totals = [job_totals(supervisor.deployment, process) for process in PROCESSES]
    return {node: total for one in totals for node, total in one.items()}


def _mean_ms(before: Totals, after: Totals) -> dict[str, float]:
    """What a job took between two looks, of each node that has run one."""
    found = {}
    for node, (count, seconds) in after.items():
        # The first job of a copy that woke meanwhile has the start of Spark in it.
        earlier_count, earlier_seconds = before.get(node, (count, seconds))
        if count > earlier_count:
            found[node] = (seconds - earlier_seconds) / (count - earlier_count) * 1e3
    return found


def of_all(lost: Sequence[Loss]) -> Figures:
    """The worst of several losses; of what hangs on a few results in each, the median, too."""
    figures = [one.figures for one in lost]
    found = {key: max(one[key] for one in figures) for key in figures[0]}
    found["job_ms"] = round(median(one["job_ms"] for one in figures), 1)
    for who, late in (
        ("partner", [one.partner for one in lost]),
        ("bystander", [one.bystander for one in lost]),
    ):
        usual = np.concatenate([one.usual for one in late])
        pauses = [round(pause_us(one.joining, usual) / 1e3) for one in late]
        found[f"{who}_pause_ms"] = round(median(pauses))
        found[f"{who}_pause_worst_ms"] = max(pauses)
        found[f"{who}_pauses_ms"] = pauses
        found[f"{who}_usual_ms"] = [round(float(np.quantile(usual, at)) / 1e3) for at in QUANTILES]
    return found


def of_parts(parts: Mapping[str, Callable[[], Figures]], tell: Tell) -> Figures:
    """What the parts have found; what one ends with is among it, and takes nothing from others."""
    figures: Figures = {}
    failed: dict[str, str] = {}
    for name, part in parts.items():
        try:
            found = part()
        except Exception as error:
            traceback.print_exc()
            failed[name] = f"{type(error).__name__}: {error}"
        else:
            tell(f"{name}: {json.dumps(found)}")
            figures |= found
    return {**figures, "failed": failed} if failed else figures


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short failures, fewer losses")
    parser.add_argument("--rate", type=int, default=TUPLES_PER_SECOND, help="tuples a second")
    parser.add_argument("--windows", type=int, default=WINDOWS, help="open windows")
    parser.add_argument("--only", choices=PARTS, nargs="*", default=PARTS, help="only these parts")
    parser.add_argument("--losses", type=int, help="how many processes are lost, one by one")
    parser.add_argument("--keep", action="store_true", help="leave the directory behind")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/results")
    options = parser.parse_args(arguments)
    quick = options.quick
    directory = Path(tempfile.mkdtemp(prefix="holdfast-replace-"))
    started = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - started:7.1f} s  {text}", file=sys.stderr, flush=True)

    calm_s = 5.0 if quick else 30.0
    # The failure, and how long jobs are looked at before and after it.
    failure_s, jobs_s = (20.0, 15.0) if quick else (600.0, 60.0)
    sales, rate = Sales(options.windows), options.rate
    losses = options.losses or (3 if quick else 5)
    failing = of_two_sources(directory / "failing")
    parts: dict[str, Callable[[], Figures]] = {
        "lost": lambda: lose_and_restart(directory / "replace", sales, rate, calm_s, losses, tell),
        "failure": lambda: fail_long(failing, sales, rate, failure_s, jobs_s, tell),
        "kept": lambda: keep(directory / "kept", failing, MINUTES_KEPT, BOUND_BYTES, tell),
    }
    figures: Figures = {"bench": "replace"}
    figures |= of_parts({name: parts[name] for name in PARTS if name in options.only}, tell)
    figures |= {
        "x_s": X_SECONDS,
        "seconds": round(time.monotonic() - started, 1),
        "machine": describe_machine(),
    }
    if options.keep:
        tell(f"see {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
    if options.record and "failed" not in figures:
        from benchmarks.replace_page import record_page

        record_page(figures, " ".join(each for each in sys.argv[1:] if each != "--record"))
    print(json.dumps(figures))
    wrong = ("lost", "doubled", "differing", "broken")
    found = [figures[name] for name in PROTECTIONS if name in figures]
    return int("failed" in figures or any(one[what] for one in found for what in wrong))


if __name__ == "__main__":
    sys.exit(main())
