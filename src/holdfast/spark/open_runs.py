"""Runs as the tasks of a process have them open: read once, and searched where they are.

A task comes back to the same runs bucket after bucket. A small one is kept as it was written or
read: to read its file again takes longer than to search it. A large one stays mapped while its file
is there, all its pages at once: found one by one, they take longer than looking up what is in them.
Files never change, and no name is used twice. ``hash_search`` says how a large one is searched.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.spark.hash_search import Directory, Sieve
from holdfast.spark.lookup_memory import Aids, next_task
from holdfast.spark.runs import (
    HASH,
    SLOT,
    Column,
    Int64s,
    as_array,
    batch_bytes,
    one_array,
    parse_address,
    plain,
    read_run,
)

# Runs from this size on are mapped, smaller ones are kept in memory.
_LARGE_BYTES = 1 << 20
# A run so large may not be in memory as a whole: its pages come as they are needed.
_HUGE_BYTES = 1 << 30
_PAGE_BYTES = mmap.PAGESIZE
# How many bytes of small runs are kept, some of windows that have ended, and what each takes more
# than its file: 80 bytes of rows are 18 objects.
_MOST_KEPT_BYTES, _RUN_BYTES = 64 << 20, 8 << 10
# A column that is kept is copied where it holds on to so much, and to so many times its own bytes.
_MUCH_BYTES, _MUCH_MORE = 64 << 10, 4
# Up to so many rows, a run has a sieve.
_SIEVED_ROWS = 1 << 20
# From so many rows on, first bits lead to hashes sooner than a binary search; to few, from more on.
_MANY_ROWS, _FEW_HASHES, _VERY_MANY_ROWS = 1 << 14, 256, 1 << 17
_MOST_LAYOUTS = 1_000
_WORD = 8
# From so many rows on a run has rows side by side, too (``OpenRun.beside``).
_BESIDE_ROWS = 1 << 13


class Layout:
    """The columns of runs; those that are merged, and what comes of them, share one."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.names: list[str] = schema.names

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """What the columns are; of those that merge, whether they can be null may differ."""
        return tuple(f"{field.name} {field.type}" for field in self.schema)

    @cached_property
    def variable(self) -> tuple[str, ...]:
        """The columns whose values are of any length."""
        return tuple(field.name for field in self.schema if not _has_width(field.type))

    @cached_property
    def written(self) -> pa.Buffer:
        """How a file of such a run begins."""
        return self.schema.serialize()


def _has_width(kind: pa.DataType) -> bool:
    try:
        return bool(kind.bit_width)
    except ValueError:
        return False


_layouts: dict[tuple[tuple[str, Any], ...], Layout] = {}


def _layout_of(columns: Mapping[str, Column]) -> Layout:
    """The layout of rows with these columns; there are as many as there are queries."""
    kinds = tuple(
        (name, each.dtype if isinstance(each, np.ndarray) else each.type)
        for name, each in columns.items()
    )
    if kinds not in _layouts:
        if len(_layouts) > _MOST_LAYOUTS:
            _layouts.clear()
        _layouts[kinds] = Layout(pa.schema([(n, as_array(c).type) for n, c in columns.items()]))
    return _layouts[kinds]


@dataclass(frozen=True)
class Beside:
    """Some columns of a run, row by row."""

    names: tuple[str, ...]
    rows: Int64s


class OpenRun:
    """A run that is looked at."""

    def __init__(self, rows: pa.Table) -> None:
        self.layout = Layout(rows.schema)
        self._rows: pa.Table | None = rows
        self._count = int(rows.num_rows)
        self._columns: dict[str, Column] = {}
        self._arrays: dict[str, pa.Array] = {}
        self._plain: dict[str, npt.NDArray[Any] | None] = {}
        self._ranges: dict[int, tuple[int, int]] = {}
        self._aids = Aids()
        self._words: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[str, ...]] = {}
        # Of which run it is which rows: Arrow is asked for all of them sooner than for each.
        self._within: tuple[OpenRun, int] | None = None

    @staticmethod
    def of(columns: Mapping[str, Column], layout: Layout | None = None) -> OpenRun:
        """One that was just made; nothing is asked of Arrow before somebody wants to know."""
        made = OpenRun.__new__(OpenRun)
        made.layout = layout or _layout_of(columns)
        made._rows = None
        made._count = len(columns[SLOT])
        made._columns = dict(columns)
        made._arrays = {}
        made._plain = {k: v for k, v in columns.items() if isinstance(v, np.ndarray)}
        made._ranges, made._aids, made._words = {}, Aids(), {}
        made._within = None
        return made

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> pa.Table:
        if self._rows is None:
            arrays = [self.array(name) for name in self.layout.names]
            self._rows = pa.Table.from_arrays(arrays, schema=self.layout.schema)
        return self._rows

    @property
    def column_bytes(self) -> int:
        """About how many bytes its columns have."""
        if self._columns:
            return sum(int(each.nbytes) for each in self._columns.values())
        return int(self.rows.nbytes)

    @cached_property
    def widest_bytes(self) -> int:
        """How many bytes the largest of its columns has whose values are of any length."""
        return max((int(self.array(name).nbytes) for name in self.layout.variable), default=0)

    def stream_bytes(self) -> bytes:
        """What a file has in it (``runs.stream_bytes``)."""
        return batch_bytes(self.layout.written, self._batch)

    def stands_alone(self) -> None:
        """Hold on to nothing of what it is a part of, or to little more than its own."""
        self._within = None
        if not self._columns:
            if _holds_much(self.rows):
                self._rows = self.rows.take(pa.array(np.arange(self._count)))
                self._arrays, self._plain = {}, {}
        elif any(map(_holds_much, self._columns.values())):
            copied = {name: _copy(each) for name, each in self._columns.items()}
            self.__dict__.update(OpenRun.of(copied, self.layout).__dict__)
        else:
            return
        for name in ("slot", "hash", "widest_bytes", "_whole_batch"):
            self.__dict__.pop(name, None)

    @property
    def _batch(self) -> pa.RecordBatch:
        if self._within is not None:
            whole, first = self._within
            return whole._whole_batch.slice(first, self._count)
        return self._whole_batch

    @cached_property
    def _whole_batch(self) -> pa.RecordBatch:
        arrays = [self.array(name) for name in self.layout.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.layout.schema)

    def part(self, low: int, high: int) -> OpenRun:
        """Some of its rows, as another run."""
        if self._columns:
            columns = {name: each[low:high] for name, each in self._columns.items()}
            part = OpenRun.of(columns, self.layout)
            part._within = (self, low)
            return part
        return OpenRun(self.rows.slice(low, high - low))

    def split(self, counts: Sequence[int]) -> list[OpenRun]:
        """So many of its rows each, one behind the other."""
        if len(counts) == 1:
            return [self]
        found, first = [], 0
        for count in counts:
            found.append(self.part(first, first + count))
            first += count
        return found

    def array(self, name: str) -> pa.Array:
        """A column in one piece."""
        if name not in self._arrays:
            made = self._columns.get(name)
            self._arrays[name] = one_array(self.rows[name]) if made is None else as_array(made)
        return self._arrays[name]

    def plain(self, name: str) -> npt.NDArray[Any] | None:
        """A column of numbers without nulls, as numpy sees it; None if it is another one."""
        if name not in self._plain:
            self._plain[name] = plain(self.array(name))
        return self._plain[name]

    @property
    def is_long(self) -> bool:
        """Whether it has so many rows that it pays to have them side by side."""
        return self._count >= _BESIDE_ROWS

    def beside(self, wanted: tuple[str, ...], keys: tuple[str, ...]) -> Beside | None:
        """Columns once more, row by row: the keys, and before them those wanted that are words.

        None if a key is no word, or if there is no more than one column. To look a key up among
        many rows is to wait for memory: once a row, or once a column.
        """
        words = self._words.get((wanted, keys))
        if words is None:
            words = tuple(name for name in (*wanted, *keys) if self._is_word(name))
            enough = len(words) > 1 and words[-len(keys) :] == keys
            self._words[wanted, keys] = words = words if enough else ()
        if not words:
            return None
        size = _WORD * len(words) * self._count
        return self._aids.get(words, size, lambda: self._put_beside(words), goes_first=True)

    def _is_word(self, name: str) -> bool:
        values = self.plain(name)
        return values is not None and is_word(values.dtype)

    def _put_beside(self, words: tuple[str, ...]) -> Beside:
        rows = np.empty((self._count, len(words)), np.int64)
        for at, name in enumerate(words):
            values = self.plain(name)
            assert values is not None
            rows[:, at] = values if values.dtype.kind in "iu" else values.view(np.int64)
        return Beside(words, rows)

    @cached_property
    def slot(self) -> Int64s:
        return self._numbers(SLOT)

    @cached_property
    def hash(self) -> Int64s:
        return self._numbers(HASH)

    def _numbers(self, name: str) -> Int64s:
        found = self.plain(name)
        assert found is not None, f"{name} is a number in every row"
        return found

    def range_of(self, slot: int) -> tuple[int, int]:
        """Which rows have this slot: the first, and the one after the last."""
        if slot not in self._ranges:
            low, high = self.slot.searchsorted([slot, slot + 1])
            self._ranges[slot] = (int(low), int(high))
        return self._ranges[slot]

    def place(self, slot: int, hashed: int) -> int:
        """How many rows come before this slot and hash."""
        low, high = self.range_of(slot)
        return low + int(self.hash[low:high].searchsorted(hashed))

    def sifted(self, hashes: Int64s) -> Int64s | None:
        """Which of the hashes it may have; None if there is no telling.

        Most keys are in the oldest run. That newer ones do not have them is told sooner than where
        in these they would be.
        """
        if self._count > _SIEVED_ROWS:
            return None
        if not self.is_long:
            return self._sieve.sifted(hashes)
        sieve = self._aids.get("sieve", Sieve.bytes(self._count), lambda: Sieve(self.hash))
        return None if sieve is None else sieve.sifted(hashes)

    @cached_property
    def _sieve(self) -> Sieve:
        return Sieve(self.hash)

    def equal_hashes(self, low: int, high: int, wanted: Int64s) -> tuple[Int64s, Int64s]:
        """Which of these hashes are in these rows, which have one slot; the first row of each."""
        segment, count = self.hash[low:high], high - low
        directory = None
        if count >= (_MANY_ROWS if len(wanted) > _FEW_HASHES else _VERY_MANY_ROWS):
            size = Directory.bytes(count)
            directory = self._aids.get(low, size, lambda: Directory(segment))
        if directory is None:
            at: Int64s = segment.searchsorted(wanted)
        else:
            at = directory.search(segment, wanted)
        same = (segment.take(at, mode="clip") == wanted).nonzero()[0]
        rows: Int64s = at.take(same)
        if low:
            rows += low
        return same, rows


def _holds_much(column: Column | pa.Table) -> bool:
    """Whether it keeps much more in memory than it is."""
    if isinstance(column, np.ndarray):
        base = column.base
        return (
            isinstance(base, np.ndarray)
            and base.nbytes > _MUCH_BYTES
            and base.nbytes > _MUCH_MORE * column.nbytes
        )
    held = int(column.get_total_buffer_size())
    return held > _MUCH_BYTES and held > _MUCH_MORE * int(column.nbytes)


def _copy(column: Column) -> Column:
    if isinstance(column, np.ndarray):
        return column.copy()
    return column.take(pa.array(np.arange(len(column))))


def is_word(kind: np.dtype[Any]) -> bool:
    """Whether values of this type are made into words of 64 bits and back."""
    return kind.kind in "iu" or kind == np.float64


def from_words(words: Int64s, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values again."""
    return words.astype(kind, copy=False) if kind.kind in "iu" else words.view(kind)


def taken(
    sources: Sequence[tuple[OpenRun, Int64s | None]], name: str, order: Int64s | None
) -> Column:
    """A column of these rows of several runs (None: all), one behind the other, then in order.

    As numpy sees it, where it is plain in all of them.
    """
    parts: list[npt.NDArray[Any]] = []
    for run, rows in sources:
        values = run.plain(name)
        if values is None or (parts and values.dtype != parts[0].dtype):
            break
        parts.append(values if rows is None else values.take(rows))
    else:
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return whole if order is None else whole.take(order)
    arrays = [
        run.array(name) if rows is None else run.array(name).take(pa.array(rows))
        for run, rows in sources
    ]
    column = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    return column if order is None else column.take(pa.array(order))


class SmallRuns(dict[str, OpenRun]):
    """Those in memory, by their files; the one that nobody looked at for longest goes first."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self._sizes: dict[str, int] = {}

    def keep(self, path: str, run: OpenRun, size: int) -> None:
        self.drop(path)  # two threads may have read it at once
        self[path] = run
        self._sizes[path] = size + _RUN_BYTES
        self.bytes += self._sizes[path]
        while self.bytes > _MOST_KEPT_BYTES:
            self.drop(next(iter(self)))

    def look(self, path: str) -> OpenRun | None:
        run = self.pop(path, None)
        if run is not None:
            self[path] = run  # now the last to be let go of
        return run

    def drop(self, path: str) -> None:
        if self.pop(path, None) is not None:
            self.bytes -= self._sizes.pop(path)


class LargeRuns(dict[str, OpenRun]):
    """Those that are mapped, by their files."""

    def __init__(self) -> None:
        super().__init__()
        self._looked_at: set[str] = set()

    def keep(self, path: str, run: OpenRun) -> None:
        self[path] = run
        self._looked_at.add(path)

    def look(self, path: str) -> OpenRun | None:
        run = self.get(path)
        if run is not None:
            self._looked_at.add(path)
        return run

    def let_go(self) -> None:
        """Forget those whose files are gone, unless they were looked at since the last time.

        To ask for a file takes 5 µs, and those of a state that is at work are there.
        """
        asked = self.keys() - self._looked_at
        for gone in [each for each in asked if not os.path.exists(each)]:  # noqa: PTH110 (20 µs less)
            del self[gone]
        self._looked_at.clear()


_large = LargeRuns()
_kept = SmallRuns()
# Looks run in threads of a driver.
_lock = threading.Lock()


def open_run(address: str) -> OpenRun:
    """The run at an address."""
    with _lock:
        run = _large.look(address) or _kept.look(address)
        if run is not None:
            return run
    path, _, size = parse_address(address)
    shared = size is not None
    if size is None:
        size = Path(path).stat().st_size
    if shared or size < _LARGE_BYTES:
        run = OpenRun(read_run(address))
        with _lock:
            _kept.keep(address, run, size)
        return run
    run = OpenRun(_mapped(path, size))
    with _lock:
        _large.keep(path, run)
    return run


def keep_open(path: str, run: OpenRun, size: int, swallowed: Iterable[str]) -> None:
    """A run that was just written, of so many bytes; those that are in it are needed no more."""
    with _lock:
        for each in swallowed:
            _kept.drop(each)
        if size < _LARGE_BYTES:
            run.stands_alone()
            _kept.keep(path, run, size)


def let_go() -> None:
    """Once a task: forget large runs whose files are gone, if it has not looked at them."""
    next_task()
    with _lock:
        _large.let_go()


def forget_gone_runs() -> None:
    """Let go of runs whose files are gone: mapped, they go on taking room on the disk."""
    with _lock:
        for _ in range(2):  # those that were looked at, too
            _large.let_go()
        for gone in [each for each in _kept if not Path(parse_address(each)[0]).exists()]:
            _kept.drop(gone)


def _mapped(path: str, size: int) -> pa.Table:
    # Arrow lets go of the file once it is mapped. A map of Python's would keep it open, and a task
    # that knows many partitions would come to the most files that a process may have.
    with pa.memory_map(path) as file:
        pages = file.read_buffer(size)
    if size < _HUGE_BYTES:
        np.frombuffer(pages, np.uint8)[::_PAGE_BYTES].max()
    return pa.ipc.open_stream(pages).read_all()
