"""Where a late row may take the boundary as its time.

A late row that is taken belongs to a time that is over; its result went out. In front of a tumbling
window it then counts in the window that is open, as a whole and once: totals over time are exact,
only their windows are another. In front of anything else it would meet the wrong tuples: a join
would pair it with others, a sliding window would count it in windows it has no part in, a session
would be opened or kept open by it; and an output would show it under a time that it does not have.
"""

from __future__ import annotations

from holdfast.network import Network
from holdfast.operators import Operator, SourceOperator, StatefulOperator
from holdfast.spark.aggregate import Aggregate
from holdfast.windows import TimeWindow


def why_late_rows_are_not_taken(network: Network, source: SourceOperator) -> str | None:
    """Why ``late = "take"`` is not exact for this source; None if it is."""
    outputs = {id(stream.operator): name for name, stream in network.outputs.items()}
    reached: list[Operator] = [source]
    seen: set[int] = set()
    while reached:
        operator = reached.pop()
        if id(operator) in seen:
            continue
        seen.add(id(operator))
        if id(operator) in outputs:
            return (
                f"its tuples reach the output {outputs[id(operator)]!r} without a tumbling window "
                f"on the way, and would have another time there than their own"
            )
        for reader in network.operators:
            if operator not in reader.inputs:
                continue
            if not isinstance(reader, StatefulOperator):
                reached.append(reader)
            elif not _is_tumbling(reader):
                return f"its tuples reach {reader.label!r}, which is no tumbling window"
    return None


def _is_tumbling(operator: StatefulOperator) -> bool:
    stateful = operator.stateful
    return (
        isinstance(stateful, Aggregate)
        and isinstance(stateful.window, TimeWindow)
        and stateful.window.size == stateful.window.advance
    )
