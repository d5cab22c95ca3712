"""Finds keys in runs: the newest row of each, read column by column where it is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.spark.open_runs import Beside, OpenRun, from_words, taken
from holdfast.spark.runs import (
    DEAD,
    Bools,
    Column,
    Int64s,
    as_array,
    null_safe_equal,
    numbers,
    plain,
    take,
)

# Fewer keys are looked up as soon as sifted.
_MANY_KEYS = 200


@dataclass(frozen=True)
class Keys:
    """What to look up: one entry for each distinct key. Ascending hashes are found fastest."""

    slot: Int64s
    hash: Int64s
    columns: tuple[Column, ...]

    @cached_property
    def plain(self) -> tuple[npt.NDArray[Any] | None, ...]:
        """The columns as numpy sees them, where they are numbers without nulls."""
        return tuple(plain(column) for column in self.columns)

    @cached_property
    def slots(self) -> list[int]:
        """The slots there are."""
        one = len(self.slot) and self.slot[0] == self.slot[-1] and (self.slot == self.slot[0]).all()
        found: list[int] = [int(self.slot[0])] if one else np.unique(self.slot).tolist()
        return found

    def part(self, low: int, high: int) -> Keys:
        """Some that lie beside each other."""
        columns = tuple(column[low:high] for column in self.columns)
        part = Keys(self.slot[low:high], self.hash[low:high], columns)
        if len(self.slots) == 1:
            part.__dict__["slots"] = self.slots  # it has no others
        return part


@dataclass(frozen=True)
class _Look:
    """Keys to look up, what they are called, and which columns of their rows are wanted."""

    keys: Keys
    key_names: Sequence[str]
    wanted: Sequence[str] | None

    @cached_property
    def beside(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """What is wanted and the keys, to look at side by side; None if keys are not plain."""
        plain = all(each is not None and each.dtype.kind == "i" for each in self.keys.plain)
        if self.wanted is None or not plain:
            return None
        return tuple(self.wanted), tuple(self.key_names)


@dataclass(frozen=True)
class _Hits:
    """Which keys a run has, and in which rows; ``words``: those that lie side by side."""

    run: OpenRun
    keys: Int64s
    rows: Int64s
    words: Beside | None = None

    def plain(self, name: str) -> npt.NDArray[Any] | None:
        """A wanted column; None if it is not plain."""
        values = self.run.plain(name)
        if values is None:
            return None
        if self.words is None or name not in self.words.names:
            return values.take(self.rows)
        return from_words(self.words.rows[:, self.words.names.index(name)], values.dtype)


def lookup(
    runs: Sequence[OpenRun],
    keys: Keys,
    key_names: Sequence[str],
    wanted: Sequence[str] | None = None,
) -> tuple[Bools, pa.Table | None]:
    """The newest row of each key: which were found, and the found rows in the keys' order.

    A key whose newest row is marked dead is not there. ``wanted``: the columns that the rows are to
    have; without, all.
    """
    found, columns = lookup_all([(runs, keys, key_names)], wanted)
    if columns is None:
        return found, None
    arrays = [as_array(each) for each in columns.values()]
    return found, pa.Table.from_arrays(arrays, list(columns))


def lookup_all(
    looks: Sequence[tuple[Sequence[OpenRun], Keys, Sequence[str]]],
    wanted: Sequence[str] | None = None,
) -> tuple[Bools, dict[str, Column] | None]:
    """The same for keys that are each looked up in runs of their own, one after the other.

    Each look says what its keys are called. What is wanted must be of the same types in all runs.
    """
    found = np.zeros(sum(len(keys.hash) for _, keys, _ in looks), dtype=np.bool_)
    hits: list[_Hits] = []
    first = 0
    for runs, keys, key_names in looks:
        here = found[first : first + len(keys.hash)]
        for hit in _search(runs, _Look(keys, key_names, wanted), here):
            hits.append(replace(hit, keys=hit.keys + first) if first else hit)
        first += len(here)
    if not hits:
        return found, None
    columns = _gather(hits, found, wanted)
    if DEAD in columns:
        alive = ~numbers(columns[DEAD]).astype(np.bool_)
        found[np.flatnonzero(found)[~alive]] = False
        if not alive.any():
            return found, None
        living = np.flatnonzero(alive)
        columns = {name: take(each, living) for name, each in columns.items()}
    return found, columns


def _search(runs: Sequence[OpenRun], look: _Look, found: Bools) -> list[_Hits]:
    """Where the newest row of each key is; those that are anywhere are noted as ``found``."""
    hits: list[_Hits] = []
    parts = list(_by_slot(look.keys))
    missing = len(found)
    for at in range(len(runs) - 1, -1, -1):
        for part in parts:
            known = found if hits else None
            here = _find(runs[at], part, look, known, at > 0)
            if here is not None:
                hits.append(here)
                found[here.keys] = True
                missing -= len(here.keys)
        if not missing:
            break
    return hits


@dataclass(frozen=True)
class _OfSlot:
    """The hashes of the keys that have this slot, and which these are; None: all of them."""

    slot: int
    hashes: Int64s
    which: Int64s | None


def _by_slot(keys: Keys) -> Iterator[_OfSlot]:
    if len(keys.slots) == 1:
        yield _OfSlot(keys.slots[0], keys.hash, None)
        return
    for slot in keys.slots:
        which = np.flatnonzero(keys.slot == slot)
        yield _OfSlot(slot, keys.hash.take(which), which)


def _find(
    run: OpenRun, part: _OfSlot, look: _Look, found: Bools | None, sift: bool
) -> _Hits | None:
    """Those of the keys not found yet that the run has; ``sift`` where these may be few.

    ``found``: which have been; None if none.
    """
    low, high = run.range_of(part.slot)
    if low == high:
        return None
    which, hashes = part.which, part.hashes
    if sift and len(hashes) >= _MANY_KEYS and (maybe := run.sifted(hashes)) is not None:
        which, hashes = maybe if which is None else which.take(maybe), hashes.take(maybe)
    if found is not None:
        left = (~(found if which is None else found.take(which))).nonzero()[0]
        if len(left) < len(hashes):
            which, hashes = left if which is None else which.take(left), hashes.take(left)
    if not len(hashes):
        return None
    same, rows = run.equal_hashes(low, high, hashes)
    if not len(same):
        return None
    hit = same if which is None else which.take(same)
    if run.is_long and look.beside is not None:
        beside = run.beside(*look.beside)
        together = None if beside is None else _together(run, beside, look.keys, hit, rows)
        if together is not None:
            return together
    return _confirm(run, high, look, hit, rows)


def _together(run: OpenRun, beside: Beside, keys: Keys, hit: Int64s, row: Int64s) -> _Hits | None:
    """Take what is wanted from where the keys are; None if one of these differs."""
    words = beside.rows.take(row, axis=0)
    for at, values in enumerate(keys.plain, words.shape[1] - len(keys.columns)):
        assert values is not None
        if not (words[:, at] == values.take(hit)).all():
            return None
    return _Hits(run, hit, row, Beside(beside.names, words))


def _confirm(run: OpenRun, high: int, look: _Look, hit: Int64s, row: Int64s) -> _Hits:
    """Keep the hits whose keys really are equal; follow equal hashes to the next row."""
    keys = look.keys
    equal = _same_keys(run, row, look, hit)
    if equal.all():
        return _Hits(run, hit, row)
    kept: list[tuple[Int64s, Int64s]] = []
    while True:
        kept.append((hit[equal], row[equal]))
        hit, row = hit[~equal], row[~equal] + 1
        inside = row < high
        hit, row = hit[inside], row[inside]
        still = run.hash[row] == keys.hash[hit]
        hit, row = hit[still], row[still]
        if not len(hit):
            break
        equal = _same_keys(run, row, look, hit)
    hits, rows = (np.concatenate(each) for each in zip(*kept, strict=True))
    return _Hits(run, hits, rows)


def _same_keys(run: OpenRun, row: Int64s, look: _Look, hit: Int64s) -> Bools:
    equal: Bools | None = None
    keys = look.keys
    for name, column, values in zip(look.key_names, keys.columns, keys.plain, strict=True):
        there = run.plain(name)
        if there is not None and values is not None and there.dtype.kind == "i":
            here: Bools = there.take(row) == values.take(hit)
        else:
            theirs = run.array(name).take(pa.array(row))
            here = null_safe_equal(theirs, as_array(column).take(pa.array(hit)))
        equal = here if equal is None else equal & here
    return np.ones(len(hit), dtype=np.bool_) if equal is None else equal


def _gather(hits: Sequence[_Hits], found: Bools, wanted: Sequence[str] | None) -> dict[str, Column]:
    """The rows of all hits, in the order of the keys, of which those are ``found``."""
    names = hits[0].run.layout.names
    if wanted is not None:
        names = [*wanted, *(name for name in names if name == DEAD)]
    place = hits[0].keys if len(hits) == 1 else np.concatenate([each.keys for each in hits])
    order: Int64s | None = None
    if not (place[1:] > place[:-1]).all():
        # Each key is there once, so where its row is to be is known without a sort.
        ranks = place if found.all() else (found.cumsum() - 1).take(place)
        order = np.empty(len(place), np.int64)
        order[ranks] = np.arange(len(place))
    return {name: _column(hits, name, order) for name in names}


def _column(hits: Sequence[_Hits], name: str, order: Int64s | None) -> Column:
    """A column of what was found, in this order."""
    parts = [each.plain(name) for each in hits]
    plain = [each for each in parts if each is not None]
    if len(plain) < len(parts) or any(each.dtype != plain[0].dtype for each in plain):
        return taken([(each.run, each.rows) for each in hits], name, order)
    whole = plain[0] if len(plain) == 1 else np.concatenate(plain)
    return whole if order is None else whole.take(order)
