"""X from the sources to an output is a budget: the fragments on the way share it.

What a tuple may take adds up over the fragments it passes. An output with a ``delay`` of its own
gives each fragment on its paths an equal share: the delay divided by the number of fragments on the
longest path through it. So no path takes longer than the delay, whichever a tuple takes. A fragment
that several outputs hang on has the least share any of them gives it; one that none does has
``timing.delay``, which is meant for a single fragment. What of its share a fragment waits, and what
it leaves for its jobs, is its own affair (core/patience.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from holdfast.deployment import Deployment, DeploymentError
from holdfast.plans.plan import Plan
from holdfast.times import show_duration


def divide(deployment: Deployment, plan: Plan) -> dict[str, int]:
    """X of each fragment, in microseconds."""
    shares = dict.fromkeys(plan.fragments, deployment.timing.delay_us)
    least: dict[str, int] = {}
    for output, delay_us in deployment.outputs.items():
        for name, fragments in longest_paths(plan, output).items():
            share = delay_us // fragments
            least[name] = min(least.get(name, share), share)
    return shares | least


def longest_paths(plan: Plan, output: str) -> dict[str, int]:
    """The fragments an output hangs on, and how many are on the longest path through each."""
    made_by = {each.stream: name for name, one in plan.fragments.items() for each in one.outputs}
    above = {
        name: {made_by[stream] for stream in one.inputs if stream in made_by}
        for name, one in plan.fragments.items()
    }

    @cache
    def depth(name: str) -> int:
        """How many fragments lie between the sources and the end of this one."""
        return 1 + max((depth(each) for each in above[name]), default=0)

    below = {made_by[output]: 0}
    left = [made_by[output]]
    while left:
        name = left.pop()
        for each in above[name]:
            if below.get(each, -1) < below[name] + 1:
                below[each] = below[name] + 1
                left.append(each)
    return {name: depth(name) + further for name, further in below.items()}


def end_to_end_us(plan: Plan, shares: Mapping[str, int], output: str) -> int:
    """X from the sources to an output: the sum of the longest of its paths."""
    made_by = {each.stream: name for name, one in plan.fragments.items() for each in one.outputs}

    @cache
    def until(stream: str) -> int:
        name = made_by.get(stream)
        if name is None:
            return 0
        return shares[name] + max((until(each) for each in plan.fragments[name].inputs), default=0)

    return until(output)


def check_budget(deployment: Deployment, plan: Plan) -> None:
    """DeploymentError if an output's X cannot be divided."""
    for output, delay_us in deployment.outputs.items():
        if output not in plan.outputs:
            raise DeploymentError(
                f"{deployment.path.name}: outputs.{output}: the network has no such output; it has "
                f"{sorted(plan.outputs)}"
            )
        for name, fragments in longest_paths(plan, output).items():
            share_us = delay_us // fragments
            alpha = deployment.timing.alpha
            if share_us * alpha <= plan.bucket_us:
                raise DeploymentError(
                    f"{deployment.path.name}: outputs.{output}.delay: {show_duration(delay_us)} "
                    f"over {fragments} fragments leave {name} {share_us / 1e6:g} s, of which "
                    f"tuples may wait {alpha:g} x {share_us / 1e6:g} s: less than a bucket of "
                    f"{show_duration(plan.bucket_us)}. Make the delay longer or the bucket shorter"
                )


def division(deployment: Deployment, plan: Plan) -> dict[str, dict[str, Any]]:
    """The same for programs: seconds for each output, and for each fragment on its paths."""
    shares = divide(deployment, plan)
    return {
        output: {
            "delay_s": end_to_end_us(plan, shares, output) / 1e6,
            "asked": output in deployment.outputs,
            "fragments": {name: shares[name] / 1e6 for name in longest_paths(plan, output)},
        }
        for output in plan.outputs
    }


def told(deployment: Deployment, plan: Plan) -> list[str]:
    """The division in words, a line for each output and fragment."""
    shares = divide(deployment, plan)
    timing = deployment.timing
    waits = "at most" if timing.alpha_adapts else "always"
    lines = []
    for output in plan.outputs:
        given = "as asked" if output in deployment.outputs else "by timing.delay"
        lines.append(
            f"output {output}: X = {end_to_end_us(plan, shares, output) / 1e6:g} s from the "
            f"sources, {given}"
        )
        for name, fragments in longest_paths(plan, output).items():
            lines.append(
                f"  fragment {name}: {shares[name] / 1e6:g} s ({fragments} on its longest path), "
                f"of which tuples wait {waits} {timing.alpha * shares[name] / 1e6:g} s"
            )
    return lines
