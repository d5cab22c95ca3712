"""What is known of an operator without Spark: enough to draw a network and to tell what changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class OperatorPlan:
    """One operator of the network.

    kind     source, stateless or stateful.
    inputs   the names of the operators it reads.
    columns  its output, as in SQL.
    order    "any" if the same tuples in another order give the same, "depends" if not; "" if an
             older version made the plan.
    window   of an operator with time windows: microseconds of its size, and between two of them.
    """

    name: str
    label: str
    kind: str
    fragment: str
    inputs: tuple[str, ...]
    columns: str
    order: str = ""
    window: tuple[int, ...] = ()

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "inputs": list(self.inputs), "window": list(self.window)}

    @classmethod
    def of(cls, found: dict[str, Any]) -> OperatorPlan:
        """What ``plain`` gave."""
        return cls(
            str(found["name"]),
            str(found["label"]),
            str(found["kind"]),
            str(found["fragment"]),
            tuple(str(each) for each in found["inputs"]),
            str(found["columns"]),
            str(found.get("order", "")),
            tuple(int(each) for each in found.get("window", ())),
        )
