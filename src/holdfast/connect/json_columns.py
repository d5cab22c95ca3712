"""Rows as JSON objects, made a column at a time.

The values are those of ``json_values``: times in ISO 8601 with Z, decimals as text, bytes in
base64, no word for what JSON lacks. Text that needs no escape stays as it is, in UTF-8. What Arrow
cannot write, such as lists, is written value by value.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.connect.json_values import jsonable

_NEEDS_ESCAPE = r'["\\\x00-\x1f]'
_NULL = "null"
_NOTHING = ""


def json_objects(table: pa.Table) -> list[bytes]:
    """Each row as a JSON object, in UTF-8."""
    if not table.num_columns:
        return [b"{}"] * table.num_rows
    arrays = [_one(table[name]) for name in table.column_names]
    return as_bytes(_object(table.column_names, arrays))


def as_bytes(texts: pa.Array) -> list[bytes]:
    """Texts in UTF-8."""
    found: list[bytes] = texts.cast(pa.binary()).to_pylist()
    return found


def _one(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _object(names: list[str], arrays: list[pa.Array]) -> pa.Array:
    parts: list[pa.Array | str] = []
    for place, (name, array) in enumerate(zip(names, arrays, strict=True)):
        parts.append(f"{', ' if place else '{'}{json.dumps(name)}: ")
        parts.append(_texts(array))
    return pc.binary_join_element_wise(*parts, "}", _NOTHING)


def _texts(array: pa.Array) -> pa.Array:
    """Each value as JSON; none of them null."""
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pc.fill_null(array.cast(pa.string()), _NULL)
    if pa.types.is_floating(kind):
        return _numbers(array)
    if pa.types.is_string(kind):
        return _quoted(array)
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        written = pc.strftime(array, format="%Y-%m-%dT%H:%M:%S")
        return _in_quotes(written, "Z" if kind.tz else "")
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
    if pc.any(pc.match_substring_regex(array, _NEEDS_ESCAPE), min_count=0).as_py():
        return _one_by_one(array)
    return _in_quotes(array, "")


def _in_quotes(texts: pa.Array, end: str) -> pa.Array:
    return pc.fill_null(pc.binary_join_element_wise('"', texts, f'{end}"', _NOTHING), _NULL)


def _one_by_one(array: pa.Array) -> pa.Array:
    return pa.array([json.dumps(jsonable(each)) for each in array.to_pylist()], pa.string())
