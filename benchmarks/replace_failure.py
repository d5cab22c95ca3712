"""Whether a job costs the same however long a failure lasts: real processes, one input cut off.

A replica reads two sources. The link to one of them is cut, results are tentative, and it is
healed when it has lasted. Jobs of one bucket each are timed before the cut, in the last third of
the failure, and after everything is corrected.

So are those of a *control* at the same moments: the same query over the same sources, in a process
of its own from which nothing is cut off. A machine is not as quick at all times, and the times of
one minute over those of another, ten minutes before, say that too; the control's say only that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.replace_jobs import JobTimes
from benchmarks.replace_lost import Tell, is_well, until
from benchmarks.replace_setting import CONTROL, Sales
from benchmarks.replace_watch import Reader
from benchmarks.standby_chain import now_us
from holdfast.cluster.chaos import cut, heal
from holdfast.cluster.status import node_status
from holdfast.deployment import Deployment
from holdfast.producer import Producer
from holdfast.testing.deployed import Load, supervised

REPLICA = "main-1"
CONTROL_REPLICA = f"{CONTROL}-1"


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
        times = [JobTimes(deployment, name) for name in (REPLICA, CONTROL_REPLICA)]
        try:
            return _fail(deployment, reader, times, seconds, calm_seconds, tell)
        finally:
            for one in times:
                one.close()
            for load in loads:
                load.stop()
            reader.close()


def _fail(
    deployment: Deployment,
    reader: Reader,
    times: list[JobTimes],
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
    during = [one.ms(healed_at - (healed_at - cut_at) // 3, healed_at) for one in times]
    heal(deployment, "entry-more", REPLICA)
    _wait_stable(deployment, reader)
    corrected_s = (now_us() - healed_at) / 1e6
    after = _calm(times, calm_seconds)
    if reader.broken:
        raise RuntimeError("; ".join(reader.broken))
    took, control = zip(before, during, after, strict=True)
    for who, ms in (("jobs", took), ("the control's", control)):
        tell(f"{who}: {ms[0]:.1f} ms before, {ms[1]:.1f} late in the failure, {ms[2]:.1f} after")
    beside = [one / other for one, other in zip(took, control, strict=True)]
    return {
        "job_ms_after_long_failure_over_before": _grown(took),
        "job_ms_after_long_failure_over_before_beside_control": _grown(beside),
        "failure_s": round((healed_at - cut_at) / 1e6, 1),
        "corrected_s": round(corrected_s, 1),
        "job_ms": _told(took),
        "control_job_ms": _told(control),
    }


def _grown(figures: Sequence[float]) -> float:
    before, during, after = figures
    return round(max(during, after) / before, 3)


def _told(figures: Sequence[float]) -> dict[str, float]:
    names = ("before", "late_in_the_failure", "after")
    return {name: round(ms, 1) for name, ms in zip(names, figures, strict=True)}


def _wait_stable(deployment: Deployment, reader: Reader) -> None:
    """Until what has come by now has stable results, and nothing is behind."""
    reached = now_us()
    until("stable results", lambda: reader.stable_until > reached)
    until("it is stable", lambda: is_well(node_status(deployment, [REPLICA])[REPLICA]))


def _calm(times: list[JobTimes], seconds: float) -> list[float]:
    """Let them run; the median of the job times of each."""
    began = now_us()
    time.sleep(seconds)
    return [one.ms(began, now_us()) for one in times]
