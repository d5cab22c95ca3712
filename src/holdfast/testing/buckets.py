"""Streams from plain rows, cut into buckets and run in any grouping."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.version import Version


def tuples(engine: Engine, source: str, rows: Iterable[Sequence[Any]]) -> pa.Table:
    """The tuples of one source: each row is its time in microseconds, then its columns.

    They are put into the order of their times; equal times keep the order given, which
    ``seq`` records as it would at an entry point.
    """
    schema = engine.input_schemas[source]
    ordered = sorted(rows, key=lambda row: int(row[0]))
    times = [row[0] for row in ordered]
    columns = [times, times, range(len(ordered))]
    columns += [[row[1 + i] for row in ordered] for i in range(len(schema) - 3)]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def split(tables: Mapping[str, pa.Table], cuts: Sequence[int]) -> list[Bucket]:
    """Buckets between neighbouring ``cuts``; tuples outside the cuts are left out."""
    edges = sorted(set(cuts))
    return [
        Bucket(low, high, {name: _between(table, low, high) for name, table in tables.items()})
        for low, high in itertools.pairwise(edges)
    ]


def _between(table: pa.Table, low: int, high: int) -> pa.Table:
    stime = table["stime"].cast(pa.int64())
    return table.filter(pc.and_(pc.greater_equal(stime, low), pc.less(stime, high)))


def run(
    engine: Engine | Version, buckets: Sequence[Bucket], groups: Sequence[int] | None = None
) -> dict[str, pa.Table]:
    """All outputs of advancing through ``buckets``.

    ``groups`` says how many buckets each advance takes; the rest, or all without it, go one
    at a time. An Engine starts from nothing, a Version from where it is.
    """
    version = engine if isinstance(engine, Version) else Version(engine)
    sizes = list(groups or [])
    parts: list[Mapping[str, pa.Table]] = []
    at = 0
    while at < len(buckets):
        size = max(1, sizes.pop(0)) if sizes else 1
        parts.append(version.advance(buckets[at : at + size]))
        at += size
    return {name: pa.concat_tables([part[name] for part in parts]) for name in parts[0]}
