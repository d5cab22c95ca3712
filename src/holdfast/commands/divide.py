"""``holdfast divide``: measure what jobs need, for the shares of X from the next start on.

The replicas that run are asked for a while. Of each fragment the slowest answer counts: one share
is for all its replicas, and for all shards of a fragment that has them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.deployment import Deployment
    from holdfast.plans.plan import Plan

_EVERY_SECONDS = 1.0


def add_divide(parser: argparse.ArgumentParser) -> None:
    """Add the options to the parser of ``holdfast divide``."""
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="for how long to ask (default: 10)"
    )
    parser.set_defaults(command=_divide)


def _divide(options: argparse.Namespace) -> int:
    from holdfast.cluster.status import node_status
    from holdfast.deployment import load_deployment
    from holdfast.errors import InputError
    from holdfast.plans.measured_file import keep_measured
    from holdfast.plans.plan import deployed, read_plan
    from holdfast.plans.topology import Topology

    deployment = load_deployment(options.deployment)
    if deployment.path.suffix == ".json":
        raise InputError(
            f"{deployment.name} was submitted, and a cluster divides X as it was told then; "
            f"measure where holdfast up runs it, and submit it after that"
        )
    if not any(spec.measured for spec in deployment.outputs.values()):
        raise InputError(
            f"no output of {deployment.path.name} is divided by what jobs need; write "
            f'[outputs.NAME] with a delay and divide = "measured"'
        )
    plan = deployed(deployment, read_plan(deployment))
    needs_us = measure(
        deployment,
        plan,
        lambda: node_status(deployment, [*_replicas(deployment, plan)]),
        options.seconds,
    )
    # What could not start would be refused here, and not kept.
    lines = Topology(replace(deployment, measured=needs_us), plan).budget()
    keep_measured(deployment.data, needs_us)
    print("\n".join([*lines, "kept: from the next holdfast up on, X is divided so"]))
    return 0


def measure(
    deployment: Deployment,
    plan: Plan,
    ask: Callable[[], Mapping[str, Mapping[str, Any]]],
    seconds: float,
) -> dict[str, int]:
    """What the jobs of each fragment need, in microseconds; ``ask`` gets what replicas say now."""
    from holdfast.errors import InputError

    end, found = time.monotonic() + seconds, dict[str, int]()
    names = _replicas(deployment, plan)
    while True:
        for replica, status in ask().items():
            need_s = status.get("need_s")
            if need_s is not None:
                name = names[replica]
                found[name] = max(found.get(name, 0), int(need_s * 1e6))
        if time.monotonic() + _EVERY_SECONDS > end:
            break
        time.sleep(_EVERY_SECONDS)
    unknown = sorted({*names.values()} - found.keys())
    if unknown:
        raise InputError(
            f"no replica of {', '.join(unknown)} says what its jobs need: it does not run, or has "
            f"had too few jobs yet; ask again when tuples have come for a while"
        )
    return found


def _replicas(deployment: Deployment, plan: Plan) -> dict[str, str]:
    """The replicas that take part, and as what their jobs are known."""
    from holdfast.plans.budget import measured_as

    return {
        process: measured_as(fragment)
        for name, fragment in plan.fragments.items()
        for process in deployment.fragments[name].processes
        if process not in deployment.gone
    }
