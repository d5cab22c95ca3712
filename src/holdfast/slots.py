"""Slots: how the tuples of a stream are divided among the shards that compute a fragment.

A tuple's slot follows from its routing columns alone, by the hash that the engine keeps state by
(``hashing``), so whoever divides a stream divides it alike. Slots are many more than shards; each
shard owns a range of them. The slot is in the upper bits of the hash, the engine's partition in
the lower ones: the slots of one shard are spread over all of its partitions.

Everything here is columns: a slot for each row, then one filter. Whoever serves a stream leaves out
what a shard does not take (``flight/parts.py``), and a shard looks again where nobody did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.core.messages import Part
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


def slots_of(columns: Sequence[pa.Array | pa.ChunkedArray], rows: int) -> npt.NDArray[np.uint64]:
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


def shard_name(name: str, generation: int, number: int, part: int | None = None) -> str:
    """What is called after a shard: ``counts.2``, or ``counts.g3.2`` of the third generation.

    Where shards are in parts, each with an heir of its own, these are ``counts.2.1`` and so on.
    """
    found = f"{name}.{number}" if generation == 1 else f"{name}.g{generation}.{number}"
    return found if part is None else f"{found}.{part}"


def wrong_part(part: Part, schema: pa.Schema) -> str | None:
    """Why a part of a stream of this schema cannot be; None if it can."""
    if not 0 <= part.first <= part.end <= SLOTS:
        return f"slots are from 0 to {SLOTS}, not from {part.first} to {part.end}"
    for name in part.columns:
        at = schema.get_field_index(name)
        if at < 0 and name != SEQ.name:
            return f"there is no column {name!r}; there are {schema.names}"
        if at >= 0 and not _is_hashed(schema.field(at).type):
            return f"column {name!r} is {schema.field(at).type}, which has no hash here"
    return None


def _is_hashed(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_boolean,
        pa.types.is_signed_integer,
        pa.types.is_float32,
        pa.types.is_float64,
        pa.types.is_date32,
        pa.types.is_timestamp,
        pa.types.is_string,
        pa.types.is_binary,
    )
    return any(test(kind) for test in tests)


def is_whole(part: Part) -> bool:
    """Whether a part leaves nothing out."""
    return part.first == 0 and part.end == SLOTS


def chosen(part: Part, slots: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Which rows are of a part, told by their slots."""
    mask: npt.NDArray[np.bool_] = (slots >= part.first) & (slots < part.end)
    return mask


@dataclass(frozen=True)
class Share:
    """What one shard takes of each of its inputs."""

    parts: Mapping[str, Part]

    def take(self, stream: str, table: pa.Table) -> pa.Table:
        """The rows of ``table``, tuples of ``stream`` as jobs take them, that are the shard's."""
        part = self.parts[stream]
        if is_whole(part):
            return table
        slots = slots_of([table[name] for name in part.columns], table.num_rows)
        return table.filter(pa.array(chosen(part, slots)))


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
