"""What aggregates over time windows and over count windows share: the state of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.spark.folds import Fold
from holdfast.spark.groups import Groups
from holdfast.spark.lookups import Keys
from holdfast.spark.runs import (
    HASH,
    SLOT,
    Bools,
    Column,
    Int64s,
    as_array,
    joined,
    numbers,
    one_array,
)

# Every state row also keeps the newest input time that shaped it and the oldest one.
TMAX, OLDEST = "tmax", "oldest"
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class GroupState:
    """The columns of a group's state: its key and its folds."""

    key_names: tuple[str, ...]
    folds: tuple[Fold, ...]

    @cached_property
    def folded(self) -> tuple[str, ...]:
        """What of a group's state its next one is made of."""
        return (*(name for fold in self.folds for name in fold.columns), TMAX, OLDEST)

    @property
    def depends_on_order(self) -> bool:
        """Whether the same tuples in another order give another state."""
        return any(fold.depends_on_order for fold in self.folds)

    def advance(
        self, rows: pa.Table, groups: Groups, keys: Keys, found: Bools, old: pa.Table | None
    ) -> dict[str, Column]:
        """The new state of every group the rows touch, by column."""
        columns: dict[str, Column] = {SLOT: keys.slot, HASH: keys.hash}
        columns.update(zip(self.key_names, keys.columns, strict=True))
        before = None if old is None else {name: one_array(old[name]) for name in self.folded}
        columns.update(self.fold([rows], groups, found, before))
        return columns

    def fold(
        self,
        parts: Sequence[pa.Table],
        groups: Groups,
        found: Bools,
        old: Mapping[str, Column] | None,
    ) -> dict[str, Column]:
        """The same without what tells the groups apart; their tuples are in several tables."""

        def column(name: str) -> Column:
            return joined([one_array(each[name]) for each in parts])

        columns: dict[str, Column] = {}
        for fold in self.folds:
            values = None if fold.value is None else column(fold.value)
            before = _old_columns(old, fold.columns, fold.types)
            new = fold.run(values, groups, found, before)
            for name, kind, one in zip(fold.columns, fold.types, new, strict=True):
                kept = isinstance(one, np.ndarray) or one.type == kind
                columns[name] = one if kept else as_array(one).cast(kind)
        stime, tmax = (numbers(column(name)) for name in ("stime", "tmax"))
        columns.update(_times(stime, tmax, groups, found, old))
        return columns

    @cached_property
    def kinds(self) -> tuple[Any, ...] | None:
        """What queries must have in common to be folded together; None if they cannot be."""
        if self.depends_on_order or any(fold.user is not None for fold in self.folds):
            return None
        return self.folds

    def results(self, state: pa.Table) -> dict[str, pa.Array]:
        """What the operator hands to Spark for finished groups: keys and folded values."""
        columns = {name: one_array(state[name]) for name in self.key_names}
        for fold in self.folds:
            kept = [one_array(state[name]) for name in (*fold.columns, *(fold.beside or ()))]
            names = (field.name for field in fold.results)
            columns.update(zip(names, fold.finish(kept), strict=True))
        return columns


def _old_columns(
    old: Mapping[str, Column] | None, names: Sequence[str], types: Sequence[pa.DataType]
) -> list[Column]:
    if old is None:
        return [pa.array([], kind) for kind in types]
    return [old[name] for name in names]


def _times(
    stime: Int64s, tmax: Int64s, groups: Groups, found: Bools, old: Mapping[str, Column] | None
) -> dict[str, Column]:
    newest, oldest = np.full(groups.count, _LEAST), np.full(groups.count, _MOST)
    if old is not None:
        newest[found] = numbers(old[TMAX])
        oldest[found] = numbers(old[OLDEST])
    np.minimum.at(oldest, groups.codes, stime.astype(np.int64, copy=False))
    np.maximum.at(newest, groups.codes, tmax.astype(np.int64, copy=False))
    return {TMAX: newest, OLDEST: oldest}


def emit(columns: dict[str, pa.Array], stime: Int64s, tmax: pa.Array, seq: Int64s) -> pa.Table:
    """A table of results in the order Spark expects its columns."""
    times = {"stime": pa.array(stime), "tmax": one_array(tmax), "seq": pa.array(seq)}
    return pa.table({**times, **columns})
