"""First occurrences within a tumbling window, inside a Spark task.

State: the keys each open window has seen. A tuple is emitted at once if its window has not
seen its key; the first in stream order wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from holdfast.spark.groups import group, keys_of, with_slots
from holdfast.spark.lookups import lookup
from holdfast.spark.runs import HASH, SLOT, numbers
from holdfast.spark.task import Step
from holdfast.spark.time_aggregate import FAMILY, first_open_slot
from holdfast.windows import TimeWindow


@dataclass(frozen=True)
class DistinctStep:
    """The operator."""

    window: TimeWindow
    key_names: tuple[str, ...]
    columns: tuple[str, ...]

    def __call__(self, step: Step, rows: pa.Table) -> pa.Table:
        if rows.num_rows == 0:
            return pa.table({})
        stime = numbers(rows["stime"])
        rows = with_slots(rows, stime - stime % self.window.size)
        groups = group(rows, self.key_names)
        keys = keys_of(rows, groups, self.key_names)
        seen, _ = lookup(step.read(FAMILY), keys, self.key_names)
        first = rows.take(pa.array(groups.first_row[~seen]))
        state = first.select([SLOT, HASH, *self.key_names])
        open_slot = first_open_slot(self.window, step.boundary)
        live = state.filter(pa.array(keys.slot[~seen] >= open_slot))
        step.write(FAMILY, live, self.key_names, open_slot)
        return first.select(["stime", "tmax", "seq", *self.columns])
