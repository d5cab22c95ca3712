"""X from the sources to an output is a budget: the fragments on the way share it.

What a tuple may take adds up over the fragments it passes. An output with a ``delay`` of its own
gives each fragment on its paths a share, so that no path takes longer than the delay, whichever a
tuple takes:

- *equal*: the delay divided by the number of fragments on the longest path through the fragment.
- *measured*: first what it wants, and an equal part of what that leaves on the path that leaves
  least. A fragment wants as much as it takes to do its jobs in what it does not wait, and to wait
  for its sources. Where the paths want more than there is, each has its part in proportion.

In both, what the fragments of one path are given adds up to the delay at most: each takes the least
that any path through it gives, and what one path gives its fragments adds up to the delay.

A fragment that several outputs hang on has the least share any of them gives it; one that none does
has ``timing.delay``, which is meant for a single fragment. What of its share a fragment waits, and
what it leaves for its jobs, is its own affair (core/patience.py). What jobs need is measured by
``holdfast divide`` and stays as it is while the deployment runs (plans/measured_file.py): so the
shares are the same for everybody, and no fragment takes more before another has less.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from holdfast.deployment import Deployment, DeploymentError
from holdfast.plans.fragment_plans import FragmentPlan
from holdfast.plans.lags import holds_us
from holdfast.plans.plan import Plan
from holdfast.times import show_duration


def divide(deployment: Deployment, plan: Plan) -> dict[str, int]:
    """X of each fragment, in microseconds."""
    shares = dict.fromkeys(plan.fragments, deployment.timing.delay_us)
    least: dict[str, int] = {}
    for output in deployment.outputs:
        for name, share in shares_of(deployment, plan, output).items():
            least[name] = min(least.get(name, share), share)
    return shares | least


def shares_of(deployment: Deployment, plan: Plan, output: str) -> dict[str, int]:
    """What an output with a delay of its own gives each fragment on its paths."""
    delay_us = deployment.outputs[output].delay_us
    if not by_needs(deployment, output):
        return {name: delay_us // count for name, count in longest_paths(plan, output).items()}
    wanted = wanted_us(deployment, plan)
    return {
        name: min(
            wanted[name] + (delay_us - whole) // count
            if whole <= delay_us
            else delay_us * wanted[name] // whole
            for count, whole in paths.items()
        )
        for name, paths in paths_through(plan, output, wanted).items()
    }


def by_needs(deployment: Deployment, output: str) -> bool:
    """Whether what jobs need decides the shares: it was asked for, and has been measured."""
    return deployment.outputs[output].measured and bool(deployment.measured)


def wanted_us(deployment: Deployment, plan: Plan) -> dict[str, int]:
    """The share that each fragment wants, for its jobs and its sources.

    One that was not measured, because it is new, wants as much as the slowest that was.
    """
    timing, held = deployment.timing, holds_us(deployment, plan)
    rest = 1 - (timing.alpha_least if timing.alpha_adapts else timing.alpha)
    unknown = max(deployment.measured.values(), default=0)
    found = {}
    for name, fragment in plan.fragments.items():
        need_us = deployment.measured.get(measured_as(fragment), unknown)
        waits_us = max(held.get(name, 0), 2 * plan.bucket_us)
        found[name] = int(max(need_us / rest, waits_us + need_us, waits_us / timing.alpha)) + 1
    return found


def measured_as(fragment: FragmentPlan) -> str:
    """By which name it is known what a fragment's jobs need: all its shards by one."""
    return fragment.name if fragment.shard is None else f"{fragment.shard.fragment}.*"


def longest_paths(plan: Plan, output: str) -> dict[str, int]:
    """The fragments an output hangs on, and how many are on the longest path through each."""
    nothing = dict.fromkeys(plan.fragments, 0)
    return {name: max(paths) for name, paths in paths_through(plan, output, nothing).items()}


def paths_through(plan: Plan, output: str, weights: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """The paths from the sources to an output through each fragment that it hangs on.

    By how many fragments are on a path, the heaviest of these paths.
    """
    above = plan.above
    until: dict[str, dict[int, int]] = {}
    for name in plan.in_order:
        until[name] = {} if above[name] else {1: weights[name]}
        for each in above[name]:
            _join(until[name], until[each], weights[name])
    below: dict[str, dict[int, int]] = {plan.made_by[output]: {0: 0}}
    for name in reversed(plan.in_order):
        for each in above[name] if name in below else ():
            _join(below.setdefault(each, {}), below[name], weights[name])
    found: dict[str, dict[int, int]] = {}
    for name, after in below.items():
        found[name] = {}
        for count, weight in after.items():
            _join(found[name], until[name], weight, count)
    return found


def _join(paths: dict[int, int], others: dict[int, int], weight: int, count: int = 1) -> None:
    """Add to some paths others that are so many fragments longer, and so much heavier."""
    for length, heaviest in others.items():
        known = paths.get(length + count, 0)
        paths[length + count] = max(known, heaviest + weight)


def end_to_end_us(plan: Plan, shares: Mapping[str, int], output: str) -> int:
    """X from the sources to an output: the sum of the longest of its paths."""
    made_by = plan.made_by

    @cache
    def until(stream: str) -> int:
        name = made_by.get(stream)
        if name is None:
            return 0
        return shares[name] + max((until(each) for each in plan.fragments[name].inputs), default=0)

    return until(output)


def check_budget(deployment: Deployment, plan: Plan) -> None:
    """DeploymentError if an output's X cannot be divided."""
    for output, spec in deployment.outputs.items():
        if output not in plan.outputs:
            raise DeploymentError(
                f"{deployment.path.name}: outputs.{output}: the network has no such output; it has "
                f"{sorted(plan.outputs)}"
            )
        longest = longest_paths(plan, output)
        for name, share_us in shares_of(deployment, plan, output).items():
            alpha = deployment.timing.alpha
            if share_us * alpha <= plan.bucket_us:
                raise DeploymentError(
                    f"{deployment.path.name}: outputs.{output}.delay: "
                    f"{show_duration(spec.delay_us)} over {longest[name]} fragments leave {name} "
                    f"{share_us / 1e6:g} s, of which tuples may wait {alpha:g} x "
                    f"{share_us / 1e6:g} s: less than a bucket of "
                    f"{show_duration(plan.bucket_us)}. Make the delay longer or the bucket shorter"
                )


def division(deployment: Deployment, plan: Plan) -> dict[str, dict[str, Any]]:
    """The same for programs: seconds for each output, and for each fragment on its paths.

    divide   by what: "measured" only if it has been.
    needs_s  what the jobs of each fragment were measured to need, where the shares go by it.
    """
    shares = divide(deployment, plan)
    found: dict[str, dict[str, Any]] = {}
    for output in plan.outputs:
        asked = output in deployment.outputs
        measured = asked and by_needs(deployment, output)
        names = longest_paths(plan, output)
        found[output] = {
            "delay_s": end_to_end_us(plan, shares, output) / 1e6,
            "asked": asked,
            "divide": "measured" if measured else "equal",
            "fragments": {name: shares[name] / 1e6 for name in names},
        }
        if measured:
            known = {name: measured_as(plan.fragments[name]) for name in names}
            found[output]["needs_s"] = {
                name: deployment.measured[one] / 1e6
                for name, one in known.items()
                if one in deployment.measured
            }
    return found


def told(deployment: Deployment, plan: Plan) -> list[str]:
    """The division in words, a line for each output and fragment."""
    timing = deployment.timing
    waits = "at most" if timing.alpha_adapts else "always"
    lines = []
    for output, found in division(deployment, plan).items():
        given = "as asked" if found["asked"] else "by timing.delay"
        if found["divide"] == "measured":
            given += ", divided by what jobs need"
        elif found["asked"] and deployment.outputs[output].measured:
            given += ", divided equally: what jobs need is not measured yet (holdfast divide)"
        lines.append(f"output {output}: X = {found['delay_s']:g} s from the sources, {given}")
        for name, fragments in longest_paths(plan, output).items():
            share_s, need_s = found["fragments"][name], found.get("needs_s", {}).get(name)
            needs = "" if need_s is None else f"; its jobs need {need_s:g} s"
            lines.append(
                f"  fragment {name}: {share_s:g} s ({fragments} on its longest path{needs}), of "
                f"which tuples wait {waits} {timing.alpha * share_s:g} s"
            )
    return lines
