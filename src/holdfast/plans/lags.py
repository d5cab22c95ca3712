"""How far the sources of a deployment lag by their own settings, and who waits for them.

A source whose tuples bring their own time is as far as its newest tuple less its ``lateness``, or,
when it is quiet, ``idle_after`` behind the present. Whoever merges it with others holds these back
for as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.connect.push_source import PushSource
from holdfast.connect.source import FUTURE_LIMIT, Source
from holdfast.deployment import Deployment, SourceSpec

if TYPE_CHECKING:
    from holdfast.plans.plan import Plan


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


def who_waits(plan: Plan, source: str) -> list[str]:
    """The fragments that hold tuples back for a source.

    Those that read it, and those that merge what became of it with what does not hang on it: to
    all others everything comes as late as it does.
    """
    reached, found = {source}, []
    for name in plan.in_order:
        fragment = plan.fragments[name]
        hanging = [stream in reached for stream in fragment.inputs]
        if any(hanging):
            reached |= {each.stream for each in fragment.outputs}
            if source in fragment.inputs or not all(hanging):
                found.append(name)
    return found


def lags_us(deployment: Deployment, plan: Plan) -> dict[str, int]:
    """How far each stream lags behind the present by the settings of its sources."""
    lags = {}
    for name, spec in deployment.sources.items():
        source = source_of(spec)
        settings = source.time_settings(plan.bucket_us)
        waits = plan.sources[name].stime is not None and source.live
        lags[name] = settings.lateness_us + (settings.idle_after_us or 0) if waits else 0
    for name in plan.in_order:
        lag_us = max(lags[stream] for stream in plan.fragments[name].inputs)
        lags |= {each.stream: lag_us for each in plan.fragments[name].outputs}
    return lags


def least_lag_us(plan: Plan, fragment: str, lags: Mapping[str, int]) -> int:
    """How late the freshest tuples come to a fragment; those of a source come at once."""
    inputs = plan.fragments[fragment].inputs
    return min(0 if stream in plan.sources else lags[stream] for stream in inputs)


def holds_us(deployment: Deployment, plan: Plan) -> dict[str, int]:
    """How long each fragment must be able to hold tuples back for its sources, with some room.

    Only the fragments that wait for a source that lags.
    """
    lags, bucket_us = lags_us(deployment, plan), plan.bucket_us
    found: dict[str, int] = {}
    for source, spec in deployment.sources.items():
        if plan.sources[source].stime is None or not source_of(spec).live:
            continue
        for name in who_waits(plan, source):
            lag_us = lags[source] - least_lag_us(plan, name, lags)
            held = lag_us + 2 * bucket_us + boundary_interval_us(bucket_us)
            found[name] = max(found.get(name, 0), held)
    return found
