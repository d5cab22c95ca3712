"""Spark's ``xxhash64`` on Arrow columns, equal to the bit, without a loop over rows.

State is kept by this hash, and the place of a window's result in the stream follows from it; so
a key must have one hash whether Spark's JVM computed it or a worker did.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

UInt64s = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_BLOCK = 8_192

# Spark's types whose hash is known here, by how their values are hashed.
NARROW = ("boolean", "tinyint", "smallint", "int", "date", "float")
WIDE = ("bigint", "timestamp", "timestamp_ntz", "double")
BYTES = ("string", "binary")


def xxhash64(columns: list[pa.Array], seed: int, rows: int) -> pa.Array:
    """The hash of each row over ``columns``; a null leaves the hash of those before it."""
    with np.errstate(over="ignore"):
        hashes = np.full(rows, np.int64(seed)).view(np.uint64)
        for column in columns:
            mixed = _hash_column(column, hashes)
            if column.null_count:
                mixed = np.where(column.is_null().to_numpy(zero_copy_only=False), hashes, mixed)
            hashes = mixed
    return pa.array(hashes.view(np.int64))


def _hash_column(column: pa.Array, seeds: UInt64s) -> UInt64s:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_bytes(column, seeds)
    if pa.types.is_boolean(kind):
        return _hash_int(_values(column.cast(pa.int32())), seeds)
    if pa.types.is_floating(kind):
        return _hash_floating(_values(column), seeds)
    if pa.types.is_timestamp(kind) or pa.types.is_int64(kind):
        return _hash_long(_values(_as(column, pa.int64())), seeds)
    return _hash_int(_values(_as(column, pa.int32())), seeds)


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Arrow takes some 10 µs to cast a column to what it is."""
    return column if column.type == kind else column.cast(kind)


def _values(column: pa.Array) -> npt.NDArray[np.generic]:
    """The values; those of nulls may be anything."""
    filled = pc.fill_null(column, 0) if column.null_count else column
    values: npt.NDArray[np.generic] = filled.to_numpy(zero_copy_only=False)
    return values


def _hash_floating(values: npt.NDArray[np.generic], seeds: UInt64s) -> UInt64s:
    """By their bits: one for both zeros, one for every NaN, as Java has them."""
    kind = values.dtype.type
    plain = np.where(np.isnan(values), kind(np.nan), np.where(values == 0, kind(0), values))
    if values.dtype == np.float32:
        return _hash_int(plain.astype(np.float32).view(np.int32), seeds)
    return _hash_long(plain.astype(np.float64).view(np.int64), seeds)


def _rotate(value: UInt64s, bits: int) -> UInt64s:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


def _finish(value: UInt64s) -> UInt64s:
    value = (value ^ (value >> np.uint64(33))) * _P2
    value = (value ^ (value >> np.uint64(29))) * _P3
    return value ^ (value >> np.uint64(32))


def _take_four(value: UInt64s, word: UInt64s) -> UInt64s:
    return _rotate(value ^ (word * _P1), 23) * _P2 + _P3


def _take_eight(value: UInt64s, word: UInt64s) -> UInt64s:
    return _rotate(value ^ (_rotate(word * _P2, 31) * _P1), 27) * _P1 + _P4


def _hash_int(values: npt.NDArray[np.generic], seeds: UInt64s) -> UInt64s:
    words = values.astype(np.int32).view(np.uint32).astype(np.uint64)
    return _in_blocks(
        seeds, words, lambda seed, word: _finish(_take_four(seed + _P5 + np.uint64(4), word))
    )


def _hash_long(values: npt.NDArray[np.generic], seeds: UInt64s) -> UInt64s:
    words = values.astype(np.int64, copy=False).view(np.uint64)
    return _in_blocks(
        seeds, words, lambda seed, word: _finish(_take_eight(seed + _P5 + np.uint64(8), word))
    )


def _in_blocks(
    seeds: UInt64s, words: UInt64s, hashed: Callable[[UInt64s, UInt64s], UInt64s]
) -> UInt64s:
    """The hashes of many words: what is in between of a block stays in the processor's cache."""
    found = np.empty(len(words), np.uint64)
    for first in range(0, len(words), _BLOCK):
        rows = slice(first, first + _BLOCK)
        found[rows] = hashed(seeds[rows], words[rows])
    return found


def _hash_bytes(column: pa.Array, seeds: UInt64s) -> UInt64s:
    """Texts of one length at a time: their bytes are a matrix."""
    if len(seeds) > 1 and (seeds == seeds[0]).all():
        # Keys come again and again; each different one is hashed once.
        coded = column.dictionary_encode()
        codes = pc.fill_null(coded.indices, 0).to_numpy(zero_copy_only=False)
        found = _hash_lengths(coded.dictionary, np.full(len(coded.dictionary), seeds[0]))
        return found[codes] if len(found) else seeds
    return _hash_lengths(column, seeds)


def _hash_lengths(column: pa.Array, seeds: UInt64s) -> UInt64s:
    _, offset_buffer, data = column.buffers()
    width = len(column) + 1
    if not len(column):
        return seeds
    offsets = np.frombuffer(offset_buffer, np.int32, width, column.offset * 4).astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    result = np.empty(len(column), np.uint64)
    for length in np.unique(lengths):
        at = np.flatnonzero(lengths == length)
        block = content[starts[at][:, None] + np.arange(length)]
        result[at] = _hash_block(block, int(length), seeds[at])
    return result


def _word(block: Bytes, at: int, size: int) -> UInt64s:
    """Little-endian words from ``size`` neighbouring bytes."""
    near = np.ascontiguousarray(block[:, at : at + size])
    words: UInt64s = near.view(f"<u{size}").ravel().astype(np.uint64)
    return words


def _hash_block(block: Bytes, length: int, seeds: UInt64s) -> UInt64s:
    at = 0
    if length >= 32:
        lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
        while at + 32 <= length:
            words = [_word(block, at + 8 * lane, 8) for lane in range(4)]
            taken = zip(lanes, words, strict=True)
            lanes = [_rotate(lane + word * _P2, 31) * _P1 for lane, word in taken]
            at += 32
        value = _rotate(lanes[0], 1) + _rotate(lanes[1], 7)
        value = value + _rotate(lanes[2], 12) + _rotate(lanes[3], 18)
        for lane in lanes:
            value = (value ^ (_rotate(lane * _P2, 31) * _P1)) * _P1 + _P4
    else:
        value = seeds + _P5
    value = value + np.uint64(length)
    while at + 8 <= length:
        value = _take_eight(value, _word(block, at, 8))
        at += 8
    if at + 4 <= length:
        value = _take_four(value, _word(block, at, 4))
        at += 4
    while at < length:
        value = _rotate(value ^ (_word(block, at, 1) * _P5), 11) * _P1
        at += 1
    return _finish(value)
