"""Slots: how the tuples of a stream are divided among the shards that compute a fragment.

A tuple's slot follows from its routing columns alone, by the hash that the engine keeps state by
(``hashing``), so whoever divides a stream divides it alike. Slots are many more than shards; each
shard owns a range of them. The slot is in the upper bits of the hash, the engine's partition in
the lower ones: the slots of one shard are spread over all of its partitions.

Everything here is columns: a slot for each row, then one filter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.frames import SEQ, STIME
from holdfast.hashing import xxhash64

_BITS = 10
SLOTS = 1 << _BITS
# The key that every tuple has: it divides streams that no operator with state reads.
ANY = (STIME.name, SEQ.name)
_SEED = 42


class Routing(Enum):
    """By what the tuples of a fragment's inputs are divided among its shards."""

    KEY = "key"
    RANDOM = "random"
    PRIMARY = "primary"


def slots_of(columns: Sequence[pa.ChunkedArray], rows: int) -> npt.NDArray[np.uint64]:
    """The slot of each row."""
    arrays = [_one_array(column) for column in columns]
    hashes = xxhash64(arrays, _SEED, rows).to_numpy(zero_copy_only=False)
    slots: npt.NDArray[np.uint64] = hashes.view(np.uint64) >> np.uint64(64 - _BITS)
    return slots


def slot_range(shard: int, shards: int, routing: Routing) -> tuple[int, int]:
    """The first slot of a shard, counted from 1, and the first one that is not its own."""
    if routing is Routing.PRIMARY:
        return (0, SLOTS) if shard == 1 else (SLOTS, SLOTS)
    return (shard - 1) * SLOTS // shards, shard * SLOTS // shards


@dataclass(frozen=True)
class Share:
    """What one shard takes of each of its inputs.

    columns  the routing columns of each input.
    """

    first: int
    end: int
    columns: Mapping[str, tuple[str, ...]]

    def take(self, stream: str, table: pa.Table) -> pa.Table:
        """The rows of ``table``, tuples of ``stream``, whose slots are the shard's."""
        if (self.first, self.end) == (0, SLOTS):
            return table
        columns = [table[name] for name in self.columns[stream]]
        slots = slots_of(columns, table.num_rows)
        return table.filter(pa.array((slots >= self.first) & (slots < self.end)))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
