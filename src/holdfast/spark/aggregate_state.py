"""What aggregates over time windows and over count windows share: the state of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.spark.folds import Fold
from holdfast.spark.groups import Groups
from holdfast.spark.lookups import Keys
from holdfast.spark.runs import HASH, SLOT, Bools, Int64s, numbers, one_array

# Every state row also keeps the newest input time that shaped it and the oldest one.
TMAX, OLDEST = "tmax", "oldest"


@dataclass(frozen=True)
class GroupState:
    """The columns of a group's state: its key and its folds."""

    key_names: tuple[str, ...]
    folds: tuple[Fold, ...]

    @property
    def folded(self) -> tuple[str, ...]:
        """What of a group's state its next one is made of."""
        return (*(name for fold in self.folds for name in fold.columns), TMAX, OLDEST)

    @property
    def depends_on_order(self) -> bool:
        """Whether the same tuples in another order give another state."""
        return any(fold.depends_on_order for fold in self.folds)

    def advance(
        self, rows: pa.Table, groups: Groups, keys: Keys, found: Bools, old: pa.Table | None
    ) -> dict[str, pa.Array]:
        """The new state of every group the rows touch, by column."""
        columns: dict[str, pa.Array] = {SLOT: pa.array(keys.slot), HASH: pa.array(keys.hash)}
        columns.update(zip(self.key_names, keys.columns, strict=True))
        for fold in self.folds:
            values = None if fold.value is None else one_array(rows[fold.value])
            new = fold.run(values, groups, found, _old_columns(old, fold.columns, fold.types))
            for name, kind, column in zip(fold.columns, fold.types, new, strict=True):
                columns[name] = column if column.type == kind else column.cast(kind)
        columns.update(_times(rows, groups, found, old))
        return columns

    def results(self, state: pa.Table) -> dict[str, pa.Array]:
        """What the operator hands to Spark for finished groups: keys and folded values."""
        columns = {name: one_array(state[name]) for name in self.key_names}
        for fold in self.folds:
            kept = [one_array(state[name]) for name in (*fold.columns, *(fold.beside or ()))]
            columns.update(zip(fold.columns, fold.finish(kept), strict=True))
        return columns


def _old_columns(
    old: pa.Table | None, names: Sequence[str], types: Sequence[pa.DataType]
) -> list[pa.Array]:
    if old is None:
        return [pa.array([], kind) for kind in types]
    return [one_array(old[name]) for name in names]


def _times(
    rows: pa.Table, groups: Groups, found: Bools, old: pa.Table | None
) -> dict[str, pa.Array]:
    newest = np.full(groups.count, np.iinfo(np.int64).min)
    oldest = np.full(groups.count, np.iinfo(np.int64).max)
    if old is not None:
        newest[found] = numbers(old[TMAX])
        oldest[found] = numbers(old[OLDEST])
    np.minimum.at(oldest, groups.codes, numbers(rows["stime"]).astype(np.int64))
    np.maximum.at(newest, groups.codes, numbers(rows["tmax"]).astype(np.int64))
    return {TMAX: pa.array(newest), OLDEST: pa.array(oldest)}


def emit(columns: dict[str, pa.Array], stime: Int64s, tmax: pa.Array, seq: Int64s) -> pa.Table:
    """A table of results in the order Spark expects its columns."""
    times = {"stime": pa.array(stime), "tmax": one_array(tmax), "seq": pa.array(seq)}
    return pa.table({**times, **columns})
