"""What a change would change, in words, before it is submitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from holdfast.deployment import Deployment
from holdfast.deployment_file import DeploymentReader
from holdfast.plans.plan import Plan

IN_PLACE = "every process stops and starts again; what they have logged is kept"


def changes_between(
    deployment: Deployment,
    plan: Plan,
    tables: tuple[dict[str, Any], dict[str, Any]],
    built: Mapping[str, Any],
    besides: str = IN_PLACE,
) -> list[str]:
    """Operators, outputs, knobs and processes that would not be as they are; and what happens.

    ``tables`` of the deployment as they are and as they would be.
    """
    before = {each.name: asdict(each) for each in plan.operators}
    after = {each["name"]: each for each in built["operators"]}
    said = [line for each in plan.fragments.values() for line in each.description]
    will_say = [line for lines in built["says"].values() for line in lines]
    found = [
        f"operator {name}: new, {after[name]['label']}" for name in after if name not in before
    ]
    found += [f"operator {name}: gone" for name in before if name not in after]
    for name in after:
        if name in before:
            was, will_be = _of(name, before[name], said), _of(name, after[name], will_say)
            if was != will_be:
                found.append(f"operator {name}: {after[name]['label']}")
    outputs = set(plan.outputs)
    found += [f"output {name}: new" for name in sorted(set(built["outputs"]) - outputs)]
    found += [f"output {name}: gone" for name in sorted(outputs - set(built["outputs"]))]
    found += _values("", *tables)
    # Replicas that were added while it ran are in neither.
    now, then = (DeploymentReader(deployment.path).deployment(each).processes for each in tables)
    found += [f"process {name}: new" for name in then if name not in now]
    found += [f"process {name}: gone" for name in now if name not in then]
    return [*found, besides] if found else []


def _of(name: str, operator: dict[str, Any], said: list[str]) -> tuple[Any, ...]:
    """What an operator computes, and on what."""
    # Every shard says the same of it.
    lines = tuple(dict.fromkeys(line for line in said if line.startswith(f"{name}: ")))
    return (operator["fragment"], tuple(operator["inputs"]), operator["columns"], lines)


def _values(where: str, before: Any, after: Any) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            line
            for name in sorted({*before, *after})
            for line in _values(
                f"{where}.{name}" if where else name, before.get(name), after.get(name)
            )
        ]
    return [] if before == after else [f"{where}: {_shown(before)} → {_shown(after)}"]


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)
