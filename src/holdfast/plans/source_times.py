"""The sources of a deployment with their own time: made as the file says, and checked against X.

A tuple may be held for αX before its bucket goes out without what is missing. A live source that
is slower than that by its own settings would make everything tentative for ever, so the sum is
made before anything starts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.connect.push_source import PushSource
from holdfast.connect.source import FUTURE_LIMIT, Source
from holdfast.core.settings import Timing
from holdfast.core.source_time import Late, TimeSettings
from holdfast.deployment import Deployment, DeploymentError, SourceSpec
from holdfast.errors import HoldfastError
from holdfast.plans.budget import divide
from holdfast.times import show_duration

if TYPE_CHECKING:
    from holdfast.plans.plan import Plan, SourcePlan


def source_of(spec: SourceSpec) -> Source:
    """The source that an entry point reads, or that producers push."""
    if spec.reads is None:
        source: Source = PushSource(0)
    else:
        from holdfast.connect.specs import parse_source

        source = parse_source(f"{spec.name}={spec.reads}")[1]
    if source.future_limit is None:
        # Beside others that go by the clock, one row of another century holds up everything.
        source = replace(source, future_limit=FUTURE_LIMIT)
    return replace(source, **spec.times)


def boundary_interval_us(bucket_us: int) -> int:
    """How often an entry point says how far it is."""
    return max(10_000, min(100_000, bucket_us // 2))


def lane_idle_us(timing: Timing, settings: TimeSettings) -> int:
    """How long one producer may be quiet while others are not, if the user does not say.

    Half of what is left of αX: those who wait for it are out in time.
    """
    left = timing.alpha_x_us - _held_us(settings)
    return max(settings.bucket_us, left // 2)


def check_times(deployment: Deployment, plan: Plan) -> None:
    """DeploymentError if a source's settings about time cannot work."""
    for name, spec in deployment.sources.items():
        try:
            timing = timing_at(deployment, plan, name)
            _check(deployment, spec, plan.sources[name], timing, plan.bucket_us)
        except DeploymentError:
            raise
        except HoldfastError as error:
            raise _error(deployment, spec, str(error)) from None


def timing_at(deployment: Deployment, plan: Plan, source: str) -> Timing:
    """The times of who reads a source; of the one with the shortest X, if there are several."""
    shares = divide(deployment, plan)
    readers = [shares[name] for name, each in plan.fragments.items() if source in each.inputs]
    delay_us = min(readers, default=deployment.timing.delay_us)
    return replace(deployment.timing, delay_us=delay_us)


def least_alpha(deployment: Deployment, plan: Plan, timing: Timing) -> float:
    """How far α may fall: what a source lags by its own settings must fit into the wait."""
    held_us = [
        _held_us(settings) + (settings.idle_after_us or 0) + settings.bucket_us
        for name, spec in deployment.sources.items()
        if plan.sources[name].stime is not None and source_of(spec).live
        for settings in [source_of(spec).time_settings(plan.bucket_us)]
    ]
    return min(timing.alpha, max(timing.alpha_least, max(held_us, default=0) / timing.delay_us))


def _check(
    deployment: Deployment, spec: SourceSpec, plan: SourcePlan, timing: Timing, bucket_us: int
) -> None:
    if plan.stime is None:
        if spec.times:
            raise _error(
                deployment,
                spec,
                f"{next(iter(spec.times))} is for sources whose tuples bring their own time; this "
                f"one takes the time of arrival. Name the column in the network: stime=...",
            )
        return
    source = source_of(spec)
    settings = source.time_settings(bucket_us)
    if settings.late is Late.TAKE and plan.late_refused is not None:
        raise _error(deployment, spec, f"late = 'take' is not possible: {plan.late_refused}")
    if source.live:
        _check_sum(deployment, spec, settings, timing)


def _check_sum(
    deployment: Deployment, spec: SourceSpec, settings: TimeSettings, timing: Timing
) -> None:
    held_us = _held_us(settings) + (settings.idle_after_us or 0)
    if held_us < timing.alpha_x_us:
        return
    parts = [
        f"lateness {show_duration(settings.lateness_us)}",
        f"a bucket of {show_duration(settings.bucket_us)}",
        f"{show_duration(boundary_interval_us(settings.bucket_us))} between two boundaries",
    ]
    if settings.idle_after_us is not None:
        parts.insert(1, f"idle_after {show_duration(settings.idle_after_us)}")
    raise _error(
        deployment,
        spec,
        f"tuples would wait {' + '.join(parts)} = {held_us / 1e6:g} s for it, but may wait only "
        f"alpha x delay = {timing.alpha:g} x {timing.delay_us / 1e6:g} s = "
        f"{timing.alpha_x_us / 1e6:g} s: everything would be tentative for ever. Make "
        f"{'lateness' if settings.idle_after_us is None else 'lateness or idle_after'} shorter, or "
        f"timing.delay longer",
    )


def _held_us(settings: TimeSettings) -> int:
    """How long a tuple waits at most for its bucket, if its source goes on speaking."""
    bucket_us = settings.bucket_us
    return settings.lateness_us + bucket_us + boundary_interval_us(bucket_us)


def _error(deployment: Deployment, spec: SourceSpec, what: str) -> DeploymentError:
    return DeploymentError(f"{deployment.path.name}: sources.{spec.name}: {what}")
