"""Runs: the files a stateful operator's state lives in.

The state of one operator in one partition is a short list of *runs*, oldest first. A run is an
immutable Arrow file of state rows, sorted by ``(slot, hash)``: ``slot`` is the start of a time
window (0 for operators without one), ``hash`` the 64-bit hash of the state key. A bucket reads
the few rows it touches from the runs (``lookups``), writes their new versions as one new
run, and leaves the rest alone; the newest run that has a key wins. So a bucket costs what it
touches, not what is open, a checkpoint is keeping the list, and forking is using it twice.

A hash is not a key: rows carry their key columns, and a lookup compares them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from holdfast import disk
from holdfast.disk import Operation

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
# As numpy has it where it is numbers without nulls; Arrow takes longer to have it looked at.
Column: TypeAlias = pa.Array | npt.NDArray[Any]

SLOT, HASH, VERSION, DEAD = "slot", "hash", "version", "dead"
# So many rows are put together in memory and written at once: a file takes a call for every column
# otherwise, and calls are most of what a small one takes.
_FEW_ROWS = 1 << 14
_PLAIN = frozenset(
    [
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64()),
    ]
)
# Types whose values lie in memory alike for numpy and Arrow.
_ALIKE = {np.dtype(each.to_pandas_dtype()): each for each in _PLAIN}
_PLACE = re.compile(r"(.*)#(\d+)\+(\d+)", re.DOTALL)
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
# Arrow would ask the environment with every file.
_OPTIONS = pa.ipc.IpcWriteOptions()


def mix(left: Int64s, right: Int64s | int) -> Int64s:
    """A hash of two columns of hashes; equal on every machine."""
    with np.errstate(over="ignore"):
        value = left.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        other = np.asarray(right).astype(np.int64).astype(np.uint64)
        value ^= other + np.uint64(0x632BE59BD9B4E019)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Int64s = (value ^ (value >> np.uint64(31))).astype(np.int64)
    return mixed


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column as a single array; one that is in one piece is not copied."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    # Arrow copies even a single piece when it combines: with 5 million rows of state, 10 ms a look.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def one_piece(table: pa.Table) -> pa.Table:
    """The table with every column as a single array; those that are so are not copied."""
    if all(column.num_chunks == 1 for column in table.itercolumns()):
        return table
    return table.combine_chunks()


def as_array(column: Column) -> pa.Array:
    """A column as Arrow has it."""
    if not isinstance(column, np.ndarray):
        return column
    kind = _ALIKE.get(column.dtype)
    if kind is None or not column.flags.c_contiguous:
        return pa.array(column)
    # Arrow would look what else it might be: three times as long, with every column of every run.
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)], 0)


def homes(hashes: Int64s, partitions: int) -> Int64s:
    """The partition of each hash."""
    if partitions & (partitions - 1):
        return hashes % partitions
    return hashes & (partitions - 1)  # the same, in a fiftieth of the time


def numbers(column: Column | pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column without nulls as a numpy array, without copying where Arrow allows."""
    if isinstance(column, np.ndarray):
        return column
    values: npt.NDArray[Any] = one_array(column).to_numpy(zero_copy_only=False)
    return values


def plain(column: Column) -> npt.NDArray[Any] | None:
    """A column of numbers without nulls as a numpy array; None if it is another one."""
    if isinstance(column, np.ndarray):
        return column
    if column.type not in _PLAIN or column.null_count:
        return None
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def read_run(address: str) -> pa.Table:
    """A run's rows, mapped into memory rather than read.

    Arrow's file format would do as well, but opening it waits for another thread, each time.
    """
    path, first, _ = parse_address(address)
    with pa.memory_map(path) as source:
        source.seek(first)
        return pa.ipc.open_stream(source).read_all()


def place_in_file(first: int, size: int) -> str:
    """How the address of a run ends that shares its file (``bundles``)."""
    return f"#{first}+{size}"


def parse_address(address: str) -> tuple[str, int, int | None]:
    """The file of an address, where its run begins and how long it is; None if it is all of it."""
    found = _PLACE.fullmatch(address)
    return (found[1], int(found[2]), int(found[3])) if found else (address, 0, None)


def write_run(path: str, rows: pa.Table) -> int:
    """Write a run; how many bytes it has."""
    return write_file(path, [rows])


def write_file(path: str, tables: Sequence[pa.Table], head: bytes = b"") -> int:
    """Write tables as Arrow streams, one after the other; how many bytes it takes."""
    if sum(table.num_rows for table in tables) <= _FEW_ROWS:
        return write_bytes(path, b"".join([head, *map(stream_bytes, tables)]))
    disk.check(Operation.CREATE, path)
    with pa.OSFile(path, "wb") as file:
        write_tables(file, tables, head)
        return int(file.tell())


def write_tables(sink: pa.NativeFile, tables: Sequence[pa.Table], head: bytes = b"") -> None:
    """Write tables as Arrow streams, one after the other."""
    sink.write(head)
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
            for batch in _batches(table):
                writer.write_batch(batch)


def stream_bytes(rows: pa.Table) -> bytes:
    """A table as Arrow's own writer has it, for fewer calls."""
    batches = (each.serialize() for each in _batches(rows))
    return b"".join([rows.schema.serialize(), *batches, _END_OF_STREAM])


def batch_bytes(schema: pa.Buffer, rows: pa.RecordBatch) -> bytes:
    """The same for rows in one piece whose schema is written already."""
    return b"".join([schema, rows.serialize(), _END_OF_STREAM])


def write_bytes(path: str, data: bytes) -> int:
    """Write a file at once; how many bytes it takes."""
    disk.check(Operation.CREATE, path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        written = os.write(descriptor, data)
        while written < len(data):
            written += os.write(descriptor, memoryview(data)[written:])
    finally:
        os.close(descriptor)
    return written


def _batches(table: pa.Table) -> Sequence[pa.RecordBatch]:
    """The table in one piece; one that is in one piece is not copied."""
    batches: Sequence[pa.RecordBatch] = table.to_batches()
    return batches if len(batches) < 2 else table.combine_chunks().to_batches()


def run_name(place: tuple[str, str, int], swallowed: int, slots: Int64s, step: int) -> str:
    """What a file tells by its name of the run in it (``state.collect_runs``).

    place      operator, family and partition.
    swallowed  how many of the newest runs it replaces.
    step       no other step has this number, so that no name is used twice.
    """
    low, high = (int(slots[0]), int(slots[-1])) if len(slots) else (0, 0)
    return "~".join(str(each) for each in (*place, swallowed, len(slots), low, high, step))


def sort_rows(rows: pa.Table) -> pa.Table:
    """The rows in the order of a run."""
    slot, hashes = numbers(rows[SLOT]), numbers(rows[HASH])
    if is_sorted(slot, hashes):
        return rows
    return rows.take(pa.array(np.lexsort((hashes, slot))))


def is_sorted(slot: Int64s, hashes: Int64s) -> bool:
    """Whether rows with these slots and hashes are in the order of a run."""
    same = slot[1:] == slot[:-1]
    ascending = hashes[1:] >= hashes[:-1]
    if same.all():
        return bool(ascending.all())
    return bool(((slot[1:] > slot[:-1]) | (same & ascending)).all())


def null_safe_equal(left: pa.Array, right: pa.Array) -> Bools:
    """Element by element; null equals null and NaN equals NaN, as Spark groups them."""
    if pa.types.is_nested(left.type):
        # Arrow compares no lists and structs; texts do, and NaN's text is equal to itself.
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.fromiter((repr(a) == repr(b) for a, b in pairs), np.bool_, len(left))
    result: Bools
    if left.null_count or right.null_count:
        both_null = pc.and_(left.is_null(), right.is_null())
        equal = pc.fill_null(pc.equal(left, right), False)
        result = numbers(pc.or_(equal, both_null)).astype(np.bool_)
    else:
        result = numbers(pc.equal(left, right)).astype(np.bool_)
    if pa.types.is_floating(left.type):
        nan = pc.and_(pc.fill_null(pc.is_nan(left), False), pc.fill_null(pc.is_nan(right), False))
        result |= numbers(nan).astype(np.bool_)
    return result


def equal_rows(column: Column, left: Int64s, right: Int64s) -> Bools:
    """Whether the values in these rows are those in the other rows, pair by pair."""
    values = plain(column)
    if values is not None and values.dtype.kind == "i":
        same: Bools = values.take(left) == values.take(right)
        return same
    array = as_array(column)
    return null_safe_equal(array.take(pa.array(left)), array.take(pa.array(right)))


def exact_numbers(keys: Sequence[Column], rows: Int64s) -> Int64s:
    """A number for each of these rows, the same where all its keys are; slow beside a hash."""
    numbered = np.zeros(len(rows), np.int64)
    for key in keys:
        codes = _codes(as_array(key).take(pa.array(rows)))
        numbered = pd.factorize(numbered * (len(rows) + 1) + codes)[0].astype(np.int64)
    return numbered


def _codes(values: pa.Array) -> Int64s:
    """A number for each value, as ``null_safe_equal`` tells them apart."""
    if pa.types.is_nested(values.type):
        values = pa.array([repr(each) for each in values.to_pylist()], pa.string())
    if pa.types.is_floating(values.type):
        nan = pa.scalar(np.nan, values.type)
        zero = pa.scalar(0, values.type)  # which -0.0 becomes with it
        values = pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))
    encoded = pc.dictionary_encode(values, null_encoding="encode")
    codes: Int64s = numbers(encoded.indices).astype(np.int64)
    return codes


def take(column: Column, rows: Int64s) -> Column:
    """Some rows of a column."""
    if isinstance(column, np.ndarray):
        return column.take(rows)
    values = plain(column)
    return column.take(pa.array(rows)) if values is None else values.take(rows)


def joined(columns: Sequence[Column]) -> Column:
    """Columns of one type, one behind the other."""
    if len(columns) == 1:
        return columns[0]
    values = [plain(each) for each in columns]
    if all(each is not None for each in values):
        return np.concatenate([each for each in values if each is not None])
    return pa.concat_arrays([as_array(each) for each in columns])
