"""The sources of a deployment with their own time, checked against X.

A tuple may be held for αX before its bucket goes out without what is missing. A live source that
is slower than that by its own settings would make everything tentative for ever, so the sum is
made before anything starts: for whoever reads the source, and for whoever merges what became of it
with something that does not wait for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.core.settings import Timing
from holdfast.core.source_time import Late, TimeSettings
from holdfast.deployment import Deployment, DeploymentError, SourceSpec
from holdfast.errors import HoldfastError
from holdfast.plans.budget import divide
from holdfast.plans.lags import (
    boundary_interval_us,
    holds_us,
    lags_us,
    least_lag_us,
    source_of,
    who_waits,
)
from holdfast.times import show_duration

if TYPE_CHECKING:
    from holdfast.plans.plan import Plan


def lane_idle_us(timing: Timing, settings: TimeSettings) -> int:
    """How long one producer may be quiet while others are not, if the user does not say.

    Half of what is left of αX: those who wait for it are out in time.
    """
    left = timing.alpha_x_us - _held_us(settings)
    return max(settings.bucket_us, left // 2)


def check_sources(deployment: Deployment, plan: Plan) -> None:
    """DeploymentError if what is said of a source's time is wrong in itself."""
    for spec in deployment.sources.values():
        try:
            source_of(spec).time_settings(plan.bucket_us)
        except HoldfastError as error:
            raise _error(deployment, spec, str(error)) from None


def check_times(deployment: Deployment, plan: Plan) -> None:
    """DeploymentError if a source's settings about time cannot work with X."""
    for spec in deployment.sources.values():
        _check(deployment, spec, plan)


def timing_at(deployment: Deployment, plan: Plan, source: str) -> Timing:
    """The times of who waits for a source; of the one with the shortest X, if there are several."""
    shares = divide(deployment, plan)
    waiting = [shares[name] for name in who_waits(plan, source)]
    delay_us = min(waiting, default=deployment.timing.delay_us)
    return replace(deployment.timing, delay_us=delay_us)


def least_alpha(deployment: Deployment, plan: Plan, fragment: str, timing: Timing) -> float:
    """How far α of a fragment may fall: what sources lag by their settings must fit into it."""
    held = holds_us(deployment, plan).get(fragment, 0)
    return min(timing.alpha, max(timing.alpha_least, held / timing.delay_us))


def _check(deployment: Deployment, spec: SourceSpec, plan: Plan) -> None:
    found = plan.sources[spec.name]
    source = source_of(spec)
    if found.stime is None:
        if spec.times:
            raise _error(
                deployment,
                spec,
                f"{next(iter(spec.times))} is for sources whose tuples bring their own time; this "
                f"one takes the time of arrival. Name the column in the network: stime=...",
            )
        return
    settings = source.time_settings(plan.bucket_us)
    if settings.late is Late.TAKE and found.late_refused is not None:
        raise _error(deployment, spec, f"late = 'take' is not possible: {found.late_refused}")
    if source.live:
        lags, shares = lags_us(deployment, plan), divide(deployment, plan)
        for name in who_waits(plan, spec.name):
            timing = replace(deployment.timing, delay_us=shares[name])
            less_us = least_lag_us(plan, name, lags)
            _check_sum(deployment, spec, settings, name, timing, less_us)


def _check_sum(
    deployment: Deployment,
    spec: SourceSpec,
    settings: TimeSettings,
    fragment: str,
    timing: Timing,
    less_us: int,
) -> None:
    """Whether tuples may wait for a source as long as they have to, in one fragment.

    ``less_us``: everything comes there so late that it waits so much less.
    """
    held_us = _held_us(settings) + (settings.idle_after_us or 0) - less_us
    if held_us < timing.alpha_x_us:
        return
    parts = [
        f"lateness {show_duration(settings.lateness_us)}",
        f"a bucket of {show_duration(settings.bucket_us)}",
        f"{show_duration(boundary_interval_us(settings.bucket_us))} between two boundaries",
    ]
    if settings.idle_after_us is not None:
        parts.insert(1, f"idle_after {show_duration(settings.idle_after_us)}")
    less = f" - {show_duration(less_us)} that all others lag" if less_us else ""
    longer = "timing.delay"
    if timing.delay_us != deployment.timing.delay_us:
        longer = "the delay of the outputs behind it"
    raise _error(
        deployment,
        spec,
        f"tuples would wait {' + '.join(parts)}{less} = {held_us / 1e6:g} s for it in {fragment}, "
        f"but may wait only alpha x delay = {timing.alpha:g} x {timing.delay_us / 1e6:g} s = "
        f"{timing.alpha_x_us / 1e6:g} s: everything would be tentative for ever. Make "
        f"{'lateness' if settings.idle_after_us is None else 'lateness or idle_after'} shorter, or "
        f"{longer} longer",
    )


def _held_us(settings: TimeSettings) -> int:
    """How long a tuple waits at most for its bucket, if its source goes on speaking."""
    bucket_us = settings.bucket_us
    return settings.lateness_us + bucket_us + boundary_interval_us(bucket_us)


def _error(deployment: Deployment, spec: SourceSpec, what: str) -> DeploymentError:
    return DeploymentError(f"{deployment.path.name}: sources.{spec.name}: {what}")
