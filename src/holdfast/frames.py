"""Frames with their tuples: a header and one Arrow record batch.

Every tuple of a stream carries two times next to the columns of its schema:

- ``stime``, the tuple time, which places it in a bucket and orders it;
- ``tmax``, the newest input tuple time that shaped it.

Its tuple id is not stored: the header has the first id, the rest is position. A third column,
``seq``, orders tuples of equal ``stime``. A source's tuples have their ids for it, so entry points
do not store it; operators carry or hash it, and streams between fragments have it. Time and ``seq``
together are the tuple's *key*: it is the same on every replica, in whatever order and wherever the
network is cut. Tuples that share a key (one exploded into many) go by their columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.frame import Header, Kind

TIME = pa.timestamp("us", tz="UTC")
STIME = pa.field("stime", TIME, nullable=False)
TMAX = pa.field("tmax", TIME, nullable=False)
SEQ = pa.field("seq", pa.int64(), nullable=False)
SYSTEM_COLUMNS = ("stime", "tmax", "seq")


def stream_schema(user_schema: pa.Schema) -> pa.Schema:
    """The schema of a source's record batches: the two times, then the user's columns."""
    return pa.schema([STIME, TMAX, *user_schema])


@dataclass(frozen=True, slots=True)
class Frame:
    """A block of tuples of one kind, or a control mark (then ``batch`` is None)."""

    header: Header
    batch: pa.RecordBatch | None = None

    def __post_init__(self) -> None:
        rows = 0 if self.batch is None else self.batch.num_rows
        if rows != self.header.count:
            raise ValueError(f"the header counts {self.header.count} tuples, the batch has {rows}")

    @property
    def kind(self) -> Kind:
        return self.header.kind


def data_frame(kind: Kind, first_id: int, batch: pa.RecordBatch) -> Frame:
    """A STABLE or TENTATIVE frame of ``batch``, whose first tuple has id ``first_id``."""
    stime = pc.min_max(batch.column("stime").cast(pa.int64()))
    tmax = pc.max(batch.column("tmax").cast(pa.int64()))
    low, high = stime["min"].as_py(), stime["max"].as_py()
    return Frame(Header(kind, first_id, batch.num_rows, low, high, tmax.as_py()), batch)


def numbered(first_id: int, table: pa.Table, own: pa.Schema) -> pa.Table:
    """Stable tuples as sinks get them: tuple id, tuple time, the output's ``own`` columns."""
    ids = np.arange(first_id, first_id + table.num_rows, dtype=np.int64)
    columns = [pa.array(ids), table["stime"], *table.select(own.names).columns]
    return pa.table(columns, schema=pa.schema([SEQ, STIME, *own]))
