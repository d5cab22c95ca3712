"""The steps of a flush as rows of one table, for sinks that only append."""

from __future__ import annotations

import pyarrow as pa

from holdfast.connect.changes import Changes
from holdfast.connect.committing_writer import (
    StableRows,
    Step,
    TentativeRows,
    stable_rows,
)
from holdfast.frames import SEQ, STIME


class StepRows:
    """Makes the rows; with tentative ones they have a column ``change``, as in ``changes``."""

    def __init__(self, output: str, schema: pa.Schema, tentative: bool) -> None:
        own = [each for each in schema if each.name not in ("seq", "stime", "tmax")]
        self._changes = Changes(output, pa.schema(own), None) if tentative else None
        self.schema = self._changes.schema if self._changes else pa.schema([SEQ, STIME, *own])

    def table(self, steps: list[Step]) -> pa.Table:
        """All rows of the steps, in order."""
        if self._changes is None:
            found = stable_rows(steps)
            return self.schema.empty_table() if found is None else found.cast(self.schema)
        tables = []
        for step in steps:
            match step:
                case StableRows(table):
                    tables.append(self._changes.stable(table))
                case TentativeRows(table, why):
                    tables.append(self._changes.tentative(table, why))
                case _:
                    tables.append(self._changes.undo(step.below_stime))
        return pa.concat_tables(tables)
