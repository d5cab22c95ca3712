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
    """

    name: str
    label: str
    kind: str
    fragment: str
    inputs: tuple[str, ...]
    columns: str

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "inputs": list(self.inputs)}

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
        )
