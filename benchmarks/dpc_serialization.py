"""What serialization costs: the paper's Table 3.

Nothing fails. Tuples wait in SUnion for their bucket to be stable, so the delay grows with the
length of the buckets, which is also the interval of boundaries.

    make bench BENCH=dpc-serialization
    make bench BENCH=dpc-serialization ARGS=--quick
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from benchmarks.dpc_page import Benchmark, Outcome, Tell
from benchmarks.dpc_setting import Setting
from benchmarks.dpc_world import Hosts, World

PAPER = """
Table 3: the delay end to end of three streams through an SUnion, for growing buckets, the mean of
nine experiments of 20 s. If a bucket must be stable before its tuples are processed, the delay
grows linearly with the interval of the boundaries, which equals the length of a bucket. Memory
grows with the number of SUnions, the length of the buckets and the rate.
"""
NOTES = """
- Delay is from making a tuple to its stable result at the client, 3,000 tuples/s in three streams,
  one replica. A tuple waits half a bucket on average for its end, then for the next boundary, then
  for the bucket's Spark job; in the paper a tuple's own processing takes no time to speak of.
- Buckets are the engine's unit of work, too: there is no run without them, so `slope` (how much the
  mean delay grows with the length of the bucket) is fitted over the lengths at which the engine
  keeps up; a bucket shorter than its job makes jobs of several buckets.
"""


@dataclass(frozen=True)
class Run:
    bucket_ms: int
    mean_ms: float
    deviation_ms: float
    least_ms: float
    most_ms: float
    job_ms: float


def measure(quick: bool, tell: Tell) -> Outcome:
    lengths = [50, 100, 200, 500, 1_000] if quick else [50, 100, 150, 200, 300, 500, 750, 1_000]
    rounds, seconds = (1, 10.0) if quick else (9, 20.0)
    runs = []
    with Hosts() as hosts:
        for bucket_ms in lengths:
            setting = Setting(replicas=1, bucket_ms=bucket_ms)
            delays = []
            with World(hosts, setting) as world:
                world.settle(2.0)
                for _ in range(rounds):
                    delays.append(_delays(world, seconds))
                (noted,) = world.report().values()
                world.finish()
            jobs = [job["seconds"] for job in noted["jobs"][5:]]
            every = np.concatenate(delays)
            run = Run(
                bucket_ms,
                round(float(every.mean()), 1),
                round(float(every.std()), 1),
                round(float(every.min()), 1),
                round(float(every.max()), 1),
                round(float(np.median(jobs)) * 1000, 1),
            )
            runs.append(run)
            tell(str(run))
    return outcome(runs)


def _delays(world: World, seconds: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    since = time.time_ns() // 1000
    time.sleep(seconds)
    seen = world.arrivals.seen(since)
    made = seen.made >= since
    return (seen.came - seen.made)[made & seen.stable] / 1000.0


def outcome(runs: list[Run]) -> Outcome:
    steady = [run for run in runs if run.job_ms < run.bucket_ms]
    slope = 0.0
    if len(steady) > 1:
        lengths = [run.bucket_ms for run in steady]
        slope = float(np.polyfit(lengths, [run.mean_ms for run in steady], 1)[0])
    columns = ["bucket ms", "mean ms", "deviation ms", "least ms", "most ms", "bucket job ms"]
    rows = [
        [run.bucket_ms, run.mean_ms, run.deviation_ms, run.least_ms, run.most_ms, run.job_ms]
        for run in runs
    ]
    figures = {
        "slope": round(slope, 2),
        "least_mean_ms": min(run.mean_ms for run in runs),
    }
    return Outcome(figures, columns, rows, lambda figure: draw(figure, runs))


def draw(figure: Figure, runs: list[Run]) -> None:
    axes = figure.subplots()
    lengths = [run.bucket_ms for run in runs]
    axes.errorbar(
        lengths,
        [run.mean_ms for run in runs],
        yerr=[run.deviation_ms for run in runs],
        fmt="o-",
        label="mean and deviation",
    )
    axes.plot(lengths, [run.job_ms for run in runs], "s--", label="the bucket's Spark job")
    axes.set(xlabel="bucket (ms)", ylabel="delay (ms)", title="delay end to end", ylim=(0, None))
    axes.legend(fontsize="x-small")


BENCHMARK = Benchmark("dpc-serialization", "The delay of serialization", PAPER, NOTES, measure)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
