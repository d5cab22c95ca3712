"""Whether a job costs the same however long a failure lasts: real processes, one input cut off.

A replica reads two sources. The link to one of them is cut, results are tentative, and it is
healed when it has lasted. Jobs of one bucket each are timed before the cut, in the last third of
the failure, and after everything is corrected.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.replace_jobs import JobTimes
from benchmarks.replace_lost import Tell, is_well, until
from benchmarks.replace_setting import Sales
from benchmarks.replace_watch import Reader
from benchmarks.standby_chain import now_us
from holdfast.cluster.chaos import cut, heal
from holdfast.cluster.status import node_status
from holdfast.deployment import Deployment
from holdfast.producer import Producer
from holdfast.testing.deployed import Load, supervised

REPLICA = "main-1"


def fail_long(
    deployment: Deployment, sales: Sales, rate: int, seconds: float, calm_seconds: float, tell: Tell
) -> dict[str, Any]:
    """Cut one of two sources off for so long; job times over what they were before."""
    with supervised(deployment, tell):
        reader = Reader(deployment, "paid", "watch")
        opening = Producer.of(deployment.path, "sales", name="opening")
        opening.send(sales.rows(0, sales.opening))
        opening.close()
        loads = [Load(deployment, name, sales.later, rate // 2, 25) for name in ("sales", "more")]
        times = JobTimes(deployment, REPLICA)
        try:
            return _fail(deployment, reader, times, seconds, calm_seconds, tell)
        finally:
            times.close()
            for load in loads:
                load.stop()
            reader.close()


def _fail(
    deployment: Deployment,
    reader: Reader,
    times: JobTimes,
    seconds: float,
    calm_seconds: float,
    tell: Tell,
) -> dict[str, Any]:
    _wait_stable(deployment, reader)
    before = _calm(times, calm_seconds)
    cut(deployment, "entry-more", REPLICA)
    cut_at = now_us()
    until("tentative results", lambda: reader.tentative > 0)
    time.sleep(max(0.0, seconds - (now_us() - cut_at) / 1e6))
    healed_at = now_us()
    during = times.ms(healed_at - (healed_at - cut_at) // 3, healed_at)
    heal(deployment, "entry-more", REPLICA)
    _wait_stable(deployment, reader)
    corrected_s = (now_us() - healed_at) / 1e6
    after = _calm(times, calm_seconds)
    if reader.broken:
        raise RuntimeError("; ".join(reader.broken))
    tell(f"jobs: {before:.0f} ms before, {during:.0f} late in the failure, {after:.0f} after")
    return {
        "job_ms_after_long_failure_over_before": round(max(during, after) / before, 3),
        "failure_s": round((healed_at - cut_at) / 1e6, 1),
        "corrected_s": round(corrected_s, 1),
        "job_ms": {
            "before": round(before, 1),
            "late_in_the_failure": round(during, 1),
            "after": round(after, 1),
        },
    }


def _wait_stable(deployment: Deployment, reader: Reader) -> None:
    """Until what has come by now has stable results, and nothing is behind."""
    reached = now_us()
    until("stable results", lambda: reader.stable_until > reached)
    until("it is stable", lambda: is_well(node_status(deployment, [REPLICA])[REPLICA]))


def _calm(times: JobTimes, seconds: float) -> float:
    """Let it run; the median of its job times."""
    began = now_us()
    time.sleep(seconds)
    return times.ms(began, now_us())
