"""Rows as JSON objects and arrays, made a column at a time.

The values are those of ``json_values``: times in ISO 8601 with Z, decimals as text, bytes in
base64, no word for what JSON lacks. Text that needs no escape stays as it is, in UTF-8. What Arrow
cannot write, such as lists, is written value by value.
"""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.connect.json_values import jsonable

_QUOTE, _BACKSLASH, _FIRST_PLAIN, _LAST_PLAIN = b'"\\ ~'
_NULL = "null"
_NOTHING = ""


def json_objects(table: pa.Table) -> list[bytes]:
    """Each row as a JSON object, in UTF-8."""
    if not table.num_columns:
        return [b"{}"] * table.num_rows
    arrays = [_one(table[name]) for name in table.column_names]
    return as_bytes(_object(table.column_names, arrays))


def json_arrays(table: pa.Table) -> list[bytes]:
    """Each row as a JSON array, in ASCII: letter for letter what the json module writes."""
    parts: list[pa.Array | str] = ["["]
    for name in table.column_names:
        array = _one(table[name])
        texts = _texts(array) if _is_written_alike(array) else _one_by_one(array)
        parts += [", " if len(parts) > 1 else "", texts]
    return as_bytes(_joined([*parts, "]"]))


def as_bytes(texts: pa.Array) -> list[bytes]:
    """Texts in UTF-8."""
    found: list[bytes] = texts.cast(pa.binary()).to_pylist()
    return found


def _one(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _object(names: list[str], arrays: list[pa.Array]) -> pa.Array:
    parts: list[pa.Array | str] = ["{"]
    for name, array in zip(names, arrays, strict=True):
        parts += [", " if len(parts) > 1 else "", f"{json.dumps(name)}: ", *_parts(array)]
    return _joined([*parts, "}"])


def _parts(array: pa.Array) -> list[pa.Array | str]:
    """What each value is in JSON, in pieces that stand beside each other; none of them null."""
    if pa.types.is_string(array.type) and not array.null_count and not _need_escapes(array):
        return ['"', array, '"']
    return [_texts(array)]


def _joined(parts: list[pa.Array | str]) -> pa.Array:
    """The pieces of each row as one text; those that are the same in all rows are put together."""
    merged: list[pa.Array | str] = []
    for each in parts:
        if isinstance(each, str) and merged and isinstance(merged[-1], str):
            merged[-1] += each
        else:
            merged.append(each)
    return pc.binary_join_element_wise(*merged, _NOTHING)


def _texts(array: pa.Array) -> pa.Array:
    """Each value as JSON; none of them null."""
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pc.fill_null(array.cast(pa.string()), _NULL)
    if pa.types.is_floating(kind):
        return _numbers(array)
    if pa.types.is_string(kind):
        return _quoted(array)
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC"):
        # Without a zone, which Arrow would look up for each of them.
        written = array.cast(pa.timestamp("us")).cast(pa.string())
        return _in_quotes(pc.binary_replace_slice(written, 10, 11, "T"), "Z" if kind.tz else "")
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        if names:
            whole = _object(names, array.flatten())
            return pc.if_else(array.is_valid(), whole, _NULL)
    return _one_by_one(array)


def _numbers(array: pa.Array) -> pa.Array:
    if not pc.all(pc.is_finite(array), min_count=0).as_py():
        return _one_by_one(array)
    texts = array.cast(pa.string())
    # What is a number with a fraction stays one for whoever reads it.
    whole = pc.match_substring_regex(texts, r"^-?\d+$")
    with_fraction = pc.binary_join_element_wise(texts, ".0", _NOTHING)
    return pc.fill_null(pc.if_else(whole, with_fraction, texts), _NULL)


def _quoted(array: pa.Array) -> pa.Array:
    if _need_escapes(array):
        return _one_by_one(array)
    return _in_quotes(array, "")


def _need_escapes(array: pa.Array) -> bool:
    """Whether any does: their bytes are looked at as one text, of which UTF-8 makes no others."""
    found = _bytes(array)
    special = (found < _FIRST_PLAIN) | (found == _QUOTE) | (found == _BACKSLASH)
    return bool(special.any())


def _bytes(texts: pa.Array) -> npt.NDArray[np.uint8]:
    """Those of all texts behind each other."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
    return np.frombuffer(data, np.uint8)[slice(*ends)]


def _is_written_alike(array: pa.Array) -> bool:
    """Whether Arrow's texts are those of the json module, which has but ASCII."""
    if pa.types.is_struct(array.type):
        return all(map(_is_written_alike, array.flatten()))
    if pa.types.is_string(array.type):
        return bool((_bytes(array) <= _LAST_PLAIN).all())
    return not pa.types.is_floating(array.type)


def _in_quotes(texts: pa.Array, end: str) -> pa.Array:
    return pc.fill_null(pc.binary_join_element_wise('"', texts, f'{end}"', _NOTHING), _NULL)


def _one_by_one(array: pa.Array) -> pa.Array:
    return pa.array([json.dumps(jsonable(each)) for each in array.to_pylist()], pa.string())
