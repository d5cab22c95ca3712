"""What a change would change, in words, before it is submitted."""

from __future__ import annotations

import tomllib
from typing import Any

from holdfast.deployment import Deployment
from holdfast.deployment_file import DeploymentReader
from holdfast.plans.plan import Plan


def changes_between(
    deployment: Deployment, plan: Plan, toml: str, built: dict[str, Any]
) -> list[str]:
    """Operators, outputs, knobs and processes that would not be as they are."""
    before = {each.name: each.plain() for each in plan.operators}
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
    tables, tables_after = tomllib.loads(deployment.path.read_text()), tomllib.loads(toml)
    found += _values("", tables, tables_after)
    other = DeploymentReader(deployment.path).deployment(tables_after)
    found += [
        f"process {name}: new" for name in other.processes if name not in deployment.processes
    ]
    found += [
        f"process {name}: gone" for name in deployment.processes if name not in other.processes
    ]
    if found:
        found.append("every process stops and starts again; what they have logged is kept")
    return found


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
