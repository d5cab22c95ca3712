"""The steps of several queries at once, inside a Spark task.

What a step of few tuples takes is mostly calls, not tuples. Steps that do not read each other, and
whose handlers say that they are alike, are carried out by one set of calls. What each of them
leaves and emits is what it would by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.spark.bundles import Bundle
from holdfast.spark.runs import one_piece
from holdfast.spark.task import StepPlan, conform, step_of

if TYPE_CHECKING:
    from holdfast.spark.column_task import Node

# Of more tuples, what is common to the steps is not worth putting their tuples together.
_FEW_ROWS = 20_000


def rounds(nodes: Sequence[Node]) -> list[list[Node]]:
    """Nodes in an order in which each comes after those it reads; steps that are alike together."""
    depths: dict[str, int] = {}
    found: dict[tuple[Any, ...], list[Node]] = {}
    for node in nodes:
        depth = depths[node.name] = 1 + max((depths.get(each, 0) for each in node.reads), default=0)
        alike = _alike(node.step)
        found.setdefault((depth, node.name if alike is None else alike), []).append(node)
    return [found[key] for key in sorted(found, key=lambda key: key[0])]


def _alike(step: StepPlan | None) -> tuple[Any, ...] | None:
    alike = getattr(step.handler, "alike", None) if step is not None else None
    return alike(step.given) if alike is not None and step is not None else None


def run_steps(
    given: Sequence[tuple[StepPlan, pa.Table]],
    partitions: Sequence[Sequence[int]],
    told: Mapping[str, Any],
    bundle: Bundle | None,
) -> list[list[pa.Table]]:
    """What each step emits for its tuples, which are those of the given partitions."""
    several = [(*each, own) for each, own in zip(given, partitions, strict=True)]
    few = sum(rows.num_rows for _, rows in given) <= _FEW_ROWS
    special = told.get("replay") is not None or told.get("only") is not None
    if len(given) == 1 or not few or special:
        return [list(plan.run(told, rows, own, bundle)) for plan, rows, own in several]
    turns = [
        (plan.handler, [step_of(told, plan, partition, bundle) for partition in own], rows)
        for plan, rows, own in several
    ]
    first: Any = given[0][0].handler
    emitted = first.all_together(turns)
    for _, steps, _ in turns:
        for step in steps:
            step.finish()
    return [
        [one_piece(conform(result, plan.output))] if result.num_rows else []
        for (plan, _), result in zip(given, emitted, strict=True)
    ]
