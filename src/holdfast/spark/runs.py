"""Runs: the files a stateful operator's state lives in.

The state of one operator in one partition is a short list of *runs*, oldest first. A run is an
immutable Arrow file of state rows, sorted by ``(slot, hash)``: ``slot`` is the start of a time
window (0 for operators without one), ``hash`` the 64-bit hash of the state key. A bucket reads
the few rows it touches from the runs by binary search, writes their new versions as one new
run, and leaves the rest alone; the newest run that has a key wins. So a bucket costs what it
touches, not what is open, a checkpoint is keeping the list, and forking is using it twice.

Runs are merged like the digits of a counter: a new run swallows its newest neighbours while
they are not much larger than itself, so every row is rewritten about log(n) times, and a
lookup searches about log(n) runs.

Closed windows need no deletion: a run's rows whose slot lies before the first open slot are
dead, and merging drops them.

A hash is not a key: rows carry their key columns, and a lookup compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast import disk
from holdfast.disk import Operation

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SLOT, HASH, VERSION, DEAD = "slot", "hash", "version", "dead"
# A new run swallows a neighbour of at most this many times its own rows.
_MERGE_RATIO = 2
# Runs from this size on stay mapped in the process that has read them.
_LARGE_BYTES = 1 << 20
_mapped: dict[str, pa.Table] = {}


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


def numbers(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column without nulls as a numpy array, without copying where Arrow allows."""
    values: npt.NDArray[Any] = one_array(column).to_numpy(zero_copy_only=False)
    return values


def read_run(path: str) -> pa.Table:
    """A run's rows, mapped into memory rather than read.

    Arrow's file format would do as well, but opening it waits for another thread, each time.
    """
    with pa.memory_map(path) as source:
        return pa.ipc.open_stream(source).read_all()


def mapped_run(path: str) -> pa.Table:
    """``read_run`` for tasks, which come back to a large run bucket after bucket.

    It stays mapped while its file is there: mapped anew, its pages have to be found one by one
    again, a third of what looking up 1,500 keys in a run of 5 million rows takes. Files never
    change, and no name is used twice.
    """
    if path in _mapped:
        return _mapped[path]
    # Every bucket has a run that is new, so what is gone is let go of soon, and not with each look.
    forget_gone_runs()
    run = read_run(path)
    if run.nbytes >= _LARGE_BYTES:
        _mapped[path] = run
    return run


def forget_gone_runs() -> None:
    """Let go of runs whose files are gone: mapped, they go on taking room on the disk."""
    for gone in [each for each in _mapped if not Path(each).exists()]:
        del _mapped[gone]


def write_run(path: str, rows: pa.Table) -> None:
    """Write a run; the name appears only when the file is complete."""
    disk.check(Operation.CREATE, path)
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
        for batch in rows.combine_chunks().to_batches():
            writer.write_batch(batch)


@dataclass(frozen=True)
class Keys:
    """What to look up: one entry for each distinct key. Ascending hashes are found fastest."""

    slot: Int64s
    hash: Int64s
    columns: tuple[pa.Array, ...]


def sort_rows(rows: pa.Table) -> pa.Table:
    """The rows in the order of a run."""
    slot, hashes = numbers(rows[SLOT]), numbers(rows[HASH])
    ascending = (slot[1:] > slot[:-1]) | ((slot[1:] == slot[:-1]) & (hashes[1:] >= hashes[:-1]))
    return rows if ascending.all() else rows.take(pa.array(np.lexsort((hashes, slot))))


def lookup(
    runs: Sequence[pa.Table], keys: Keys, key_names: Sequence[str]
) -> tuple[Bools, pa.Table | None]:
    """The newest row of each key: which were found, and the found rows in the keys' order.

    A key whose newest row is marked dead is not there.
    """
    found = np.zeros(len(keys.hash), dtype=np.bool_)
    pieces: list[pa.Table] = []
    places: list[Int64s] = []
    for run in reversed(runs):
        missing = np.flatnonzero(~found)
        if not len(missing):
            break
        hit, rows = _find(run, keys, missing, key_names)
        if len(hit):
            found[hit] = True
            pieces.append(run.take(pa.array(rows)))
            places.append(hit)
    if not pieces:
        return found, None
    place = np.concatenate(places)
    rows = pa.concat_tables(pieces, promote_options="default")
    if (place[1:] < place[:-1]).any():
        rows = rows.take(pa.array(np.argsort(place, kind="stable")))
    if DEAD in rows.column_names:
        alive = ~numbers(rows[DEAD]).astype(np.bool_)
        found[np.flatnonzero(found)[~alive]] = False
        rows = rows.filter(pa.array(alive))
    return found, rows if rows.num_rows else None


def _find(
    run: pa.Table, keys: Keys, wanted: Int64s, key_names: Sequence[str]
) -> tuple[Int64s, Int64s]:
    """Which of the ``wanted`` keys the run has, and in which rows."""
    run_slot, run_hash = numbers(run[SLOT]), numbers(run[HASH])
    hits: list[Int64s] = []
    rows: list[Int64s] = []
    for slot in np.unique(keys.slot[wanted]):
        low, high = np.searchsorted(run_slot, [slot, slot + 1])
        if low == high:
            continue
        mine = wanted[keys.slot[wanted] == slot]
        segment = run_hash[low:high]
        at = np.searchsorted(segment, keys.hash[mine])
        inside = at < len(segment)
        mine, at = mine[inside], at[inside]
        same = segment[at] == keys.hash[mine]
        hit, row = _confirm(run, keys, mine[same], at[same] + low, segment, int(low), key_names)
        hits.append(hit)
        rows.append(row)
    if not hits:
        none = np.empty(0, dtype=np.int64)
        return none, none
    return np.concatenate(hits), np.concatenate(rows)


def _confirm(
    run: pa.Table,
    keys: Keys,
    hit: Int64s,
    row: Int64s,
    segment: npt.NDArray[Any],
    low: int,
    key_names: Sequence[str],
) -> tuple[Int64s, Int64s]:
    """Keep the hits whose keys really are equal; follow equal hashes to the next row."""
    kept_hits: list[Int64s] = []
    kept_rows: list[Int64s] = []
    while len(hit):
        equal = _same_keys(run, row, keys, hit, key_names)
        kept_hits.append(hit[equal])
        kept_rows.append(row[equal])
        hit, row = hit[~equal], row[~equal] + 1
        inside = row - low < len(segment)
        hit, row = hit[inside], row[inside]
        still = segment[row - low] == keys.hash[hit]
        hit, row = hit[still], row[still]
    if not kept_hits:
        return hit, row
    return np.concatenate(kept_hits), np.concatenate(kept_rows)


def _same_keys(
    run: pa.Table, row: Int64s, keys: Keys, hit: Int64s, key_names: Sequence[str]
) -> Bools:
    equal = np.ones(len(hit), dtype=np.bool_)
    at, wanted = pa.array(row), pa.array(hit)
    for name, column in zip(key_names, keys.columns, strict=True):
        equal &= null_safe_equal(one_array(run[name].take(at)), column.take(wanted))
    return equal


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


def how_many_to_merge(run_rows: Sequence[int], new_rows: int) -> int:
    """How many of the newest runs a new run of ``new_rows`` rows should swallow."""
    merged, total = 0, new_rows
    for rows in reversed(run_rows):
        if rows > _MERGE_RATIO * total:
            break
        total += rows
        merged += 1
    return merged


def merge(
    runs: Sequence[pa.Table],
    key_names: Sequence[str] | None,
    first_open_slot: int,
    whole: bool,
) -> pa.Table:
    """One run out of several, oldest first: newest row of each key, dead rows dropped.

    Without ``key_names`` rows do not replace each other. Rows marked dead can be forgotten
    only when nothing older remains (``whole``).
    """
    # The one-task and the sharded plan disagree on which columns can be null.
    rows = pa.concat_tables(runs, promote_options="default")
    age = np.concatenate([np.full(run.num_rows, -i) for i, run in enumerate(runs)])
    slot, hashes = numbers(rows[SLOT]), numbers(rows[HASH])
    order = np.lexsort((age, hashes, slot))
    order = order[slot[order] >= first_open_slot]
    rows = rows.take(pa.array(order))
    if key_names is not None and len(order) > 1:
        rows = rows.filter(pa.array(newest_rows(rows, slot[order], hashes[order], key_names)))
    if whole and DEAD in rows.column_names:
        rows = rows.filter(pc.invert(rows[DEAD]))
    return rows


def newest_rows(
    rows: pa.Table,
    slot: npt.NDArray[Any],
    hashes: npt.NDArray[Any],
    key_names: Sequence[str],
) -> Bools:
    """True for the first row of every key; rows of one hash come newest first."""
    keep = np.ones(rows.num_rows, dtype=np.bool_)
    repeat = (slot[1:] == slot[:-1]) & (hashes[1:] == hashes[:-1])
    second = np.flatnonzero(repeat) + 1
    if not len(second):
        return keep
    first, later = pa.array(second - 1), pa.array(second)
    same = np.ones(len(second), dtype=np.bool_)
    for name in key_names:
        column = one_array(rows[name])
        same &= null_safe_equal(column.take(first), column.take(later))
    if same.all():
        keep[second] = False
        return keep
    return _newest_of_collisions(rows, slot, hashes, key_names)


def _newest_of_collisions(
    rows: pa.Table,
    slot: npt.NDArray[Any],
    hashes: npt.NDArray[Any],
    key_names: Sequence[str],
) -> Bools:
    """The slow, exact way, for the rows whose hash two different keys share."""
    keep = np.ones(rows.num_rows, dtype=np.bool_)
    change = (slot[1:] != slot[:-1]) | (hashes[1:] != hashes[:-1])
    starts = np.flatnonzero(np.concatenate(([True], change)))
    ends = np.append(starts[1:], rows.num_rows)
    for start, end in zip(starts, ends, strict=True):
        if end - start == 1:
            continue
        seen = set()
        part = rows.slice(start, end - start).select(list(key_names)).to_pylist()
        for offset, key in enumerate(part):
            identity = repr(key)
            keep[start + offset] = identity not in seen
            seen.add(identity)
    return keep
