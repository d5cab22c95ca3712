"""Which tuples of a record batch rest on which of a source, by columns (``core.provenance``)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.core.provenance import ALONE, Choice, Claim, Trail

Int64s = npt.NDArray[np.int64]


def seqs_of(batch: pa.RecordBatch) -> Int64s:
    """The column ``seq``."""
    found: Int64s = batch.column("seq").to_numpy(zero_copy_only=False)
    return found


def stimes_of(batch: pa.RecordBatch) -> Int64s:
    """The column ``stime``, in microseconds."""
    found: Int64s = batch.column("stime").cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def mask_of(seqs: Int64s, stimes: Int64s, choice: Choice) -> npt.NDArray[np.bool_]:
    """Of each tuple, whether it is chosen."""
    named = _named(seqs, stimes, choice.claims)
    found = named if choice.inside else ~named
    return found & ~_named(seqs, stimes, choice.but) if choice.but else found


def _named(seqs: Int64s, stimes: Int64s, claims: Iterable[Claim]) -> npt.NDArray[np.bool_]:
    """Of each tuple, whether one of the claims names it."""
    named = np.zeros(len(seqs), dtype=np.bool_)
    by_trail: dict[Trail, list[Claim]] = {}
    for claim in claims:
        by_trail.setdefault(claim.trail, []).append(claim)
    for trail, listed in by_trail.items():
        mine, ids = _by_trail(seqs, trail)
        if trail.alone:
            named |= mine & _is_one_of(seqs & ALONE, stimes, listed)
            continue
        listed.sort(key=lambda claim: claim.first_id)
        firsts = np.array([claim.first_id for claim in listed], dtype=np.int64)
        ends = np.array([claim.next_id for claim in listed], dtype=np.int64)
        places = stimes if trail.timed else ids
        # The last interval that begins at or before a place, if it reaches so far.
        at = np.searchsorted(firsts, places, side="right") - 1
        named |= mine & (at >= 0) & (places < ends[at])
    return named


def _is_one_of(names: Int64s, stimes: Int64s, claims: list[Claim]) -> npt.NDArray[np.bool_]:
    """Of each tuple, whether it is claimed alone: by its name and its time."""
    kinds = np.dtype([("name", np.int64), ("stime", np.int64)])
    known = np.array([(one.first_id, one.stime_max) for one in claims], dtype=kinds)
    given = np.empty(len(names), dtype=kinds)
    given["name"], given["stime"] = names, stimes
    found: npt.NDArray[np.bool_] = np.isin(given, known)
    return found


def chosen(batch: pa.RecordBatch, choice: Choice | None) -> pa.RecordBatch:
    """The tuples that are chosen; no copy if all are."""
    if choice is None or not batch.num_rows:
        return batch
    mask = mask_of(seqs_of(batch), stimes_of(batch), choice)
    return batch if mask.all() else batch.filter(pa.array(mask))


def came_by(seqs: Int64s, trails: Iterable[Trail]) -> npt.NDArray[np.bool_]:
    """Of each tuple, whether it came by one of these trails."""
    found = np.zeros(len(seqs), dtype=np.bool_)
    for trail in trails:
        found |= _by_trail(seqs, trail)[0]
    return found


def claims_of(seqs: Int64s, trails: Iterable[Trail], stime_max: int) -> tuple[Claim, ...]:
    """What single tuples, and nothing between them, can be claimed as."""
    found: list[Claim] = []
    for trail in trails:
        mine, ids = _by_trail(seqs, trail)
        own = np.unique(ids[mine])
        if not len(own):
            continue
        breaks = np.flatnonzero(np.diff(own) > 1) + 1
        firsts = own[np.concatenate([[0], breaks])]
        lasts = own[np.concatenate([breaks - 1, [len(own) - 1]])]
        found += [
            Claim(trail, first, last + 1, stime_max)
            for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)
        ]
    return tuple(found)


def each_alone(seqs: Int64s, stimes: Int64s, trails: Iterable[Trail]) -> tuple[Claim, ...]:
    """Tuples, each claimed alone, by the trail of these that it came by; the oldest first."""
    found: list[Claim] = []
    for trail in trails:
        mine, _ = _by_trail(seqs, trail)
        own = np.unique(np.stack([stimes[mine], seqs[mine] & ALONE]), axis=1)
        found += [Claim(trail, name, name + 1, stime) for stime, name in own.T.tolist()]
    return tuple(sorted(found, key=lambda claim: claim.stime_max))


def first_of_each(seqs: Int64s, stimes: Int64s, pieces: Int64s) -> npt.NDArray[np.bool_]:
    """Of each tuple of some pieces, whether it is in none before its own."""
    order = np.lexsort((pieces, seqs, stimes))
    seqs, stimes, pieces = seqs[order], stimes[order], pieces[order]
    begins = np.ones(len(order), dtype=np.bool_)
    begins[1:] = (np.diff(seqs) != 0) | (np.diff(stimes) != 0)
    first = pieces[begins][np.cumsum(begins) - 1]
    found = np.empty(len(order), dtype=np.bool_)
    found[order] = pieces == first
    return found


def _by_trail(seqs: Int64s, trail: Trail) -> tuple[npt.NDArray[np.bool_], Int64s]:
    """Whether each tuple came by a trail, and its id at the source if it did."""
    return (seqs & ((1 << trail.bits) - 1)) == trail.suffix, seqs >> trail.bits
