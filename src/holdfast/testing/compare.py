"""Compares streams: bit for bit with each other, row by row with the oracle."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]


def ipc_bytes(table: pa.Table) -> bytes:
    """The table as one Arrow IPC batch, so that equal bytes mean equal bits."""
    sink = pa.BufferOutputStream()
    rows = table.combine_chunks()
    # Slices share buffers with what they were cut from; a copy holds only its own rows.
    rows = rows.take(pa.array(range(rows.num_rows), pa.int64()))
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    found: bytes = sink.getvalue().to_pybytes()
    return found


def same_bytes(
    left: Mapping[str, pa.Table], right: Mapping[str, pa.Table], what: str = "two runs"
) -> None:
    """Raise AssertionError unless both runs gave the same outputs, bit for bit, in order."""
    if left.keys() != right.keys():
        raise AssertionError(f"{what}: outputs {sorted(left)} and {sorted(right)}")
    for name, mine in left.items():
        theirs = right[name]
        if ipc_bytes(mine) != ipc_bytes(theirs):
            difference = _difference(plain_rows(mine), plain_rows(theirs))
            raise AssertionError(f"{what} differ in output {name!r}: {difference}")


def same_rows(output: pa.Table, expected: pa.Table, what: str = "output") -> None:
    """Raise AssertionError unless the output has the oracle's rows, in a canonical order.

    ``seq`` is left out: for derived tuples it is a hash of the engine's own.
    """
    columns = [name for name in expected.column_names if name != "seq"]
    missing = sorted(set(output.column_names) ^ set(expected.column_names))
    if missing:
        raise AssertionError(f"{what}: only one side has the columns {missing}")
    types = [(output.schema.field(c).type, expected.schema.field(c).type) for c in columns]
    clash = [(c, *pair) for c, pair in zip(columns, types, strict=True) if pair[0] != pair[1]]
    if clash:
        raise AssertionError(f"{what}: column {clash[0][0]!r} is {clash[0][1]}, not {clash[0][2]}")
    mine = sorted(plain_rows(output.select(columns)), key=repr)
    theirs = sorted(plain_rows(expected.select(columns)), key=repr)
    if mine != theirs:
        difference = _difference(mine, theirs)
        raise AssertionError(f"{what} {columns} differs from the oracle: {difference}")


def plain_rows(table: pa.Table) -> list[Row]:
    """The rows as tuples that compare bit for bit: doubles by their bits, times as numbers."""
    columns = [
        [_plain(value) for value in _integers(table[name]).to_pylist()]
        for name in table.column_names
    ]
    return list(zip(*columns, strict=True)) if columns else []


def _integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        # A NaN may have any of many bit patterns; Spark itself does not keep them.
        return "nan" if value != value else (value, struct.pack(">d", value).hex())
    if isinstance(value, dict):
        return tuple(_plain(each) for each in value.values())
    if isinstance(value, list):
        return tuple(_plain(each) for each in value)
    return value


def _difference(mine: Sequence[Row], theirs: Sequence[Row]) -> str:
    for index, (left, right) in enumerate(zip(mine, theirs, strict=False)):
        if left != right:
            pairs = enumerate(zip(left, right, strict=True))
            apart = [f"column {i} is {a}, not {b}" for i, (a, b) in pairs if a != b]
            return f"row {index} of {len(mine)} and {len(theirs)}: {'; '.join(apart)}; {left}"
    longer = mine if len(mine) > len(theirs) else theirs
    at = min(len(mine), len(theirs))
    return f"{len(mine)} rows, not {len(theirs)}; the first one too many is {longer[at:][:1]}"
