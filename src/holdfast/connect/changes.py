"""An output with all that happens to it, as rows: what sinks write that take tentative tuples.

Each row says in its column ``change`` what it is:

    stable     a tuple for good; ``seq`` is its id.
    tentative  a tuple that may be taken back; it has no id, and ``why`` says what it lacks.
    undo       every tentative row above it with an older ``stime`` is taken back.

Who reads the rows in order and obeys them has the stream as it stands. Only stable rows count for
exactly once: after a crash a stream tells again what is tentative, so a sink that goes on from a
position first takes back what it had told before.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.connect.sink import Position
from holdfast.core.frame import Why
from holdfast.errors import InputError, StateError
from holdfast.frames import SEQ, STIME, TIME

CHANGE, WHY = "change", "why"
STABLE, TENTATIVE, UNDO = "stable", "tentative", "undo"
WHY_TYPE = pa.struct(
    [
        ("missing", pa.list_(pa.struct([("stream", pa.string()), ("since", TIME)]))),
        ("share", pa.float64()),
    ]
)


class Changes:
    """Makes the rows of one output, and knows which tentative ones stand."""

    def __init__(self, output: str, schema: pa.Schema, position: Position | None) -> None:
        for name in (CHANGE, WHY):
            if name in schema.names:
                raise InputError(
                    f"{output} has a column {name!r}, which is what a sink with tentative tuples "
                    f"calls its own; rename it in the query"
                )
        if position is not None and "tentative_until" not in position:
            raise StateError(
                f"the sink of {output} was without tentative tuples before and has other columns "
                f"now; write to another place, or start over with a new state directory"
            )
        own = [field.with_nullable(True) for field in schema if field.name not in ("seq", "stime")]
        self.schema = pa.schema(
            [
                pa.field(CHANGE, pa.string(), nullable=False),
                SEQ.with_nullable(True),
                STIME,
                *own,
                pa.field(WHY, WHY_TYPE),
            ]
        )
        # Tentative rows of older times than this may stand; 0 if none does.
        self.tentative_until = 0
        self._told_before = 0 if position is None else int(position["tentative_until"])

    def begin(self) -> pa.Table | None:
        """What to write first: takes back what an earlier life told tentatively, if it did."""
        return self.undo(self._told_before) if self._told_before else None

    def stable(self, table: pa.Table) -> pa.Table:
        """Stable tuples as rows."""
        return self._rows(STABLE, table, None)

    def tentative(self, table: pa.Table, why: Why | None) -> pa.Table:
        """Tentative tuples as rows."""
        if table.num_rows:
            newest = pc.max(table["stime"].cast(pa.int64())).as_py()
            self.tentative_until = max(self.tentative_until, newest + 1)
        return self._rows(TENTATIVE, table, why)

    def undo(self, below_stime: int) -> pa.Table:
        """The row that takes tentative ones back."""
        if below_stime >= self.tentative_until:
            self.tentative_until = 0
        nothing = pa.table({"stime": pa.array([below_stime]).cast(TIME)})
        return self._rows(UNDO, nothing, None)

    def _rows(self, change: str, table: pa.Table, why: Why | None) -> pa.Table:
        count = table.num_rows
        told = None if why is None else why_value(why)
        given = {
            CHANGE: pa.array([change] * count, pa.string()),
            WHY: pa.array([told] * count, WHY_TYPE),
        }
        columns = [
            given[field.name]
            if field.name in given
            else table[field.name]
            if field.name in table.column_names
            else pa.nulls(count, field.type)
            for field in self.schema
        ]
        return pa.table(columns, schema=self.schema)


def why_value(why: Why) -> dict[str, object]:
    """A why as a value of WHY_TYPE."""
    missing = [{"stream": one.stream, "since": one.since} for one in why.missing]
    return {"missing": missing, "share": why.share}
