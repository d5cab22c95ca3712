"""Whether a job costs the same however long a failure lasts: real processes, one input cut off.

A replica reads two sources. The link to one of them is cut, results are tentative, and it is
healed when it has lasted. Jobs of one bucket each are timed before the cut, in the last third of
the failure, and after everything is corrected.

So are those of a *control* at the same moments: the same query over the same sources, in a process
of its own from which nothing is cut off. A machine is not as quick at all times: on two cores jobs
of 8 ms were seen to take 16 for ten seconds, those of the control as well. The times of one minute
over those of another say that, too; the control's say only that, and are told. So each job is also
taken over the control's job of the same bucket, which ran at the same moment.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.replace_jobs import JobTimes, Stretch
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
    during = _seen(times, healed_at - (healed_at - cut_at) // 3, healed_at)
    heal(deployment, "entry-more", REPLICA)
    _wait_stable(deployment, reader)
    corrected_s = (now_us() - healed_at) / 1e6
    after = _calm(times, calm_seconds)
    if reader.broken:
        raise RuntimeError("; ".join(reader.broken))
    stretches = (before, during, after)
    took, control = ([one.ms for one in stretches], [one.control_ms for one in stretches])
    beside = [one.beside for one in stretches]
    for who, ms in (("jobs", took), ("the control's", control)):
        tell(f"{who}: {ms[0]:.1f} ms before, {ms[1]:.1f} late in the failure, {ms[2]:.1f} after")
    return {
        "job_ms_after_long_failure_over_before": _grown(took),
        "job_ms_after_long_failure_over_before_beside_control": _grown(beside),
        "job_ms_after_long_failure_over_before_of_control": _grown(control),
        "failure_s": round((healed_at - cut_at) / 1e6, 1),
        "corrected_s": round(corrected_s, 1),
        "jobs": _told([len(one.jobs) for one in stretches]),
        "job_ms": _told(took),
        "control_job_ms": _told(control),
        "job_over_control": _told(beside, 3),
    }


def _grown(figures: Sequence[float]) -> float:
    before, during, after = figures
    return round(max(during, after) / before, 3)


def _told(figures: Sequence[float], digits: int = 1) -> dict[str, float]:
    names = ("before", "late_in_the_failure", "after")
    return {name: round(one, digits) for name, one in zip(names, figures, strict=True)}


def _wait_stable(deployment: Deployment, reader: Reader) -> None:
    """Until what has come by now has stable results, and nothing is behind."""
    reached = now_us()
    until("stable results", lambda: reader.stable_until > reached)
    until("it is stable", lambda: is_well(node_status(deployment, [REPLICA])[REPLICA]))


def _calm(times: list[JobTimes], seconds: float) -> Stretch:
    """Let them run, and see their jobs."""
    began = now_us()
    time.sleep(seconds)
    return _seen(times, began, now_us())


def _seen(times: list[JobTimes], since: int, until: int) -> Stretch:
    jobs, control = (one.seen(since, until) for one in times)
    return Stretch(jobs, control)
