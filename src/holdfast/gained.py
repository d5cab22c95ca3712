"""Columns that a stream has gained: what was written before has nulls there.

A stream may gain columns that can be null; everything else about its columns stays for ever. So
tuples of before and after are tuples of one stream, and nobody has to be asked when it was.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import pyarrow as pa

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)


def gained_columns(before: pa.Schema, now: pa.Schema) -> tuple[str, ...] | None:
    """The columns that ``now`` has and ``before`` has not; None if it differs in anything else.

    The columns of before must be there in their order, as they were; new ones can be null.
    """
    if len(set(now.names)) != len(now.names):
        return None
    fresh = [field for field in now if field.name not in before.names]
    left = [field for field in now if field.name in before.names]
    if len(left) != len(before) or not all(field.nullable for field in fresh):
        return None
    if not all(old.equals(new) for old, new in zip(before, left, strict=True)):
        return None
    return tuple(field.name for field in fresh)


def without_gained(schema: pa.Schema, gained: Collection[str]) -> pa.Schema:
    """What a schema was before it gained these columns."""
    return pa.schema([field for field in schema if field.name not in gained]) if gained else schema


def with_gained(rows: _Rows, schema: pa.Schema) -> _Rows:
    """``rows`` with nulls in the columns of ``schema`` that they lack; no column is copied."""
    if rows.schema.equals(schema):
        return rows
    count = rows.num_rows
    columns = [
        rows.column(field.name) if field.name in rows.schema.names else pa.nulls(count, field.type)
        for field in schema
    ]
    return type(rows).from_arrays(columns, schema=schema)


def table_gains(there: Collection[str], schema: pa.Schema) -> list[pa.Field]:
    """The columns that a table of a database gets because the output has gained them.

    None of a table that lacks what every output has: it is somebody else's.
    """
    if "stime" not in there:
        return []
    fresh = [field for field in schema if field.name not in there]
    return fresh if all(field.nullable for field in fresh) else []
