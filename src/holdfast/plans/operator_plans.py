"""What is known of an operator without Spark: enough to draw a network and to tell what changes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OperatorPlan:
    """One operator of the network.

    kind     source, stateless or stateful.
    inputs   the names of the operators it reads.
    columns  its output, as in SQL.
    order    "any" if the same tuples in another order give the same, "depends" if not.
    window   of an operator with time windows: microseconds of its size, and between two of them.
    """

    name: str
    label: str
    kind: str
    fragment: str
    inputs: tuple[str, ...]
    columns: str
    order: str = "any"
    window: tuple[int, ...] = ()
