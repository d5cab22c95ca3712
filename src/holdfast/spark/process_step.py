"""A user's own keyed stateful operator, inside a Spark task.

For each key with new tuples the user's function gets the key, the tuples in stream order as an
Arrow table, and the state it returned last time (None at first). It returns the tuples to emit
and the new state (None forgets the key). State lives in the same runs as everybody else's.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.errors import HoldfastError
from holdfast.spark.groups import Groups, group, keys_of
from holdfast.spark.lookups import Keys, lookup
from holdfast.spark.rejected import STOP
from holdfast.spark.runs import DEAD, HASH, SLOT, Bools, Int64s, as_array, mix, numbers
from holdfast.spark.task import Step

FAMILY = "keys"
STATE, LAST = "state", "last_stime"
ProcessFunction = Callable[[dict[str, Any], pa.Table, Any], tuple[pa.Table | None, Any]]


@dataclass(frozen=True)
class ProcessStep:
    """The operator; ``forget_after`` µs without a tuple reset a key's state."""

    function: ProcessFunction
    key_names: tuple[str, ...]
    user_keys: tuple[str, ...]
    columns: tuple[str, ...]
    user_columns: tuple[str, ...]
    state_type: pa.DataType
    output: pa.Schema
    forget_after: int | None
    name: str

    def __call__(self, step: Step, rows: pa.Table) -> pa.Table:
        if rows.num_rows == 0:
            return pa.table({})
        groups = group(rows, self.key_names)
        keys = keys_of(rows, groups, self.key_names)
        found, old = lookup(step.read(FAMILY), keys, self.key_names)
        before: list[Any] = [None] * groups.count
        last_seen = np.full(groups.count, np.iinfo(np.int64).min)
        if old is not None:
            for code, value in zip(np.flatnonzero(found), old[STATE].to_pylist(), strict=True):
                before[code] = value
            last_seen[found] = numbers(old[LAST])
        outputs, states = self._call(step, rows, groups, keys, before, last_seen)
        self._keep(step, rows, groups, keys, states, found)
        return pa.concat_tables(outputs) if outputs else pa.table({})

    def _call(
        self,
        step: Step,
        rows: pa.Table,
        groups: Groups,
        keys: Keys,
        states: list[Any],
        last_seen: Int64s,
    ) -> tuple[list[pa.Table], list[Any]]:
        order = np.argsort(groups.codes, kind="stable")
        sorted_rows = rows.take(pa.array(order))
        ends = np.cumsum(np.bincount(groups.codes, minlength=groups.count))
        key_values = [as_array(column).to_pylist() for column in keys.columns]
        outputs: list[pa.Table] = []
        start = 0
        for code, end in enumerate(ends):
            mine = sorted_rows.slice(start, end - start)
            key = dict(zip(self.user_keys, (each[code] for each in key_values), strict=True))
            for calm in self._without_pauses(mine, int(last_seen[code])):
                state = None if calm.forget else states[code]
                if step.on_error == STOP:
                    states[code] = self._one_call(key, calm.rows, state, keys.hash[code], outputs)
                else:
                    given = _Given(key, keys.hash[code], step)
                    states[code] = self._call_or_reject(given, calm.rows, state, outputs)
            start = end
        return outputs, states

    def _without_pauses(self, rows: pa.Table, last_seen: int) -> list[_Calm]:
        """Split where the key was silent for so long that its state is forgotten."""
        if self.forget_after is None:
            return [_Calm(rows, False)]
        stime = numbers(rows["stime"]).astype(np.int64)
        previous = np.concatenate(([max(last_seen, -(2**62))], stime[:-1]))
        breaks = np.flatnonzero(stime - previous >= self.forget_after)
        cuts = [0, *(int(i) for i in breaks if i > 0), rows.num_rows]
        starts_fresh = set(breaks.tolist())
        return [
            _Calm(rows.slice(low, high - low), low in starts_fresh)
            for low, high in itertools.pairwise(cuts)
        ]

    def _one_call(
        self, key: dict[str, Any], rows: pa.Table, state: Any, hashed: int, outputs: list[pa.Table]
    ) -> Any:
        names = ["stime", *self.columns]
        given = rows.select(names).rename_columns(["stime", *self.user_columns])
        given = given.set_column(0, "stime", given["stime"].cast(pa.timestamp("us", tz="UTC")))
        emitted, state = self.function(key, given, state)
        if emitted is not None and emitted.num_rows:
            outputs.append(self._checked(emitted, rows, hashed))
        return state

    def _call_or_reject(
        self, given: _Given, rows: pa.Table, state: Any, outputs: list[pa.Table]
    ) -> Any:
        """Leave out the rows on which the function raises.

        What it makes of a bucket must not depend on how the stream is cut, so where it raises, the
        tuples of each time are tried by themselves, and then each of them.
        """
        kept = copy.deepcopy(state)  # the function may have changed it before it raised
        emitted: list[pa.Table] = []
        try:
            state = self._one_call(given.key, rows, state, given.hashed, emitted)
        except HoldfastError:
            raise  # what it returns is wrong whatever the rows are
        except Exception as error:
            if rows.num_rows > 1:
                for part in _smaller(rows):
                    kept = self._call_or_reject(given, part, kept, outputs)
                return kept
            (row,) = rows.select(self.columns).rename_columns(self.user_columns).to_pylist()
            stime = rows["stime"].cast(pa.timestamp("us", tz="UTC"))[0].as_py()
            given.step.reject(f"{type(error).__name__}: {error}", {"stime": stime, **row})
            return kept
        outputs += emitted
        return state

    def _checked(self, emitted: pa.Table, rows: pa.Table, hashed: int) -> pa.Table:
        wanted = ["stime", *self.output.names]
        if sorted(emitted.column_names) != sorted(wanted):
            raise HoldfastError(
                f"{self.name}: the function must return the columns {wanted}, "
                f"it returned {emitted.column_names}"
            )
        stime = numbers(emitted["stime"].cast(pa.int64())).astype(np.int64)
        times, first = np.unique(numbers(rows["stime"]).astype(np.int64), return_index=True)
        at = np.searchsorted(times, stime)
        if (at >= len(times)).any() or (times[np.minimum(at, len(times) - 1)] != stime).any():
            raise HoldfastError(
                f"{self.name}: every emitted tuple must take its stime from one of the tuples "
                f"the function was given; copy the stime column"
            )
        # Tuples of one key and time come in one call, so their order in it can be kept.
        seq = mix(numbers(rows["seq"]).astype(np.int64)[first[at]], hashed) + _place(stime)
        tmax = np.maximum.reduceat(numbers(rows["tmax"]).astype(np.int64), first)
        columns = {
            "stime": pa.array(stime),
            "tmax": pa.array(tmax[at]),
            "seq": pa.array(seq),
        }
        for field in self.output:
            columns[field.name] = emitted[field.name].combine_chunks().cast(field.type)
        return pa.table(columns)

    def _keep(
        self,
        step: Step,
        rows: pa.Table,
        groups: Groups,
        keys: Keys,
        states: list[Any],
        found: Bools,
    ) -> None:
        last = np.empty(groups.count, dtype=np.int64)
        last[groups.codes] = numbers(rows["stime"])
        gone = np.array([state is None for state in states], dtype=np.bool_)
        columns = {SLOT: pa.array(keys.slot), HASH: pa.array(keys.hash)}
        columns.update(zip(self.key_names, keys.columns, strict=True))
        columns[STATE] = pa.array(states, self.state_type)
        columns[LAST], columns[DEAD] = pa.array(last), pa.array(gone)
        step.ended(FAMILY, int((gone & found).sum()))
        opened, passed = ~gone & ~found, gone & ~found
        step.write(FAMILY, pa.table(columns), self.key_names, opened=opened, passed=passed)


@dataclass(frozen=True)
class _Given:
    """For whom a function is called."""

    key: dict[str, Any]
    hashed: int
    step: Step


def _smaller(rows: pa.Table) -> list[pa.Table]:
    """The tuples of each time; of a single time, each of them."""
    stime = numbers(rows["stime"]).astype(np.int64)
    cuts = [0, *(np.flatnonzero(np.diff(stime)) + 1).tolist(), rows.num_rows]
    if len(cuts) == 2:
        cuts = list(range(rows.num_rows + 1))
    return [rows.slice(low, high - low) for low, high in itertools.pairwise(cuts)]


def _place(stime: Int64s) -> Int64s:
    """For each tuple, how many before it have the same time."""
    order = np.argsort(stime, kind="stable")
    ordered = stime[order]
    place = np.empty(len(stime), dtype=np.int64)
    place[order] = np.arange(len(stime)) - np.searchsorted(ordered, ordered)
    return place


@dataclass(frozen=True)
class _Calm:
    """Tuples of one key without a long pause, and whether a long pause came before them."""

    rows: pa.Table
    forget: bool
