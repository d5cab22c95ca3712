"""Makes rows fit the declared schema, and finds those that do not.

Good data is converted a column at a time. Only where a column as a whole cannot be converted
is it halved until the values that cannot stand alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.connect.source import Reject
from holdfast.errors import InputError
from holdfast.frames import TIME

_FAULTS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError)
_ZONE = r"(?:[Zz]|[+-]\d\d:?(?:\d\d)?)\s*$"
# What Python and Spark can show: the years 1 to 9999.
OLDEST_US, NEWEST_US = -62_135_596_800_000_000, 253_402_300_799_999_999


def conform(
    table: pa.Table, schema: pa.Schema, required: Sequence[str]
) -> tuple[pa.Table, list[Reject]]:
    """The rows of ``table`` as ``schema`` declares them, and the rows that cannot be.

    ``required`` columns and those declared NOT NULL must have a value.
    """
    if table.num_rows == 0:
        return schema.empty_table(), []
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise InputError(f"there is no column {missing[0]!r}; the rows have {table.column_names}")
    bad: dict[int, str] = {}
    columns: list[pa.Array] = []
    for field in schema:
        column = _one_array(table[field.name])
        _refuse_hopeless(field, column.type)
        try:
            columns.append(_checked_range(_convert(column, field.type)))
        except _FAULTS:
            for row, reason in _bad_values(column, field).items():
                bad.setdefault(row, reason)
        if not field.nullable or field.name in required:
            for null in np.flatnonzero(_booleans(column.is_null())):
                bad.setdefault(int(null), f"column {field.name!r} is null")
    if not bad:
        return pa.table(columns, schema=_nullable(schema)).cast(schema), []
    rejects = [Reject(bad[row], _shown(table, row)) for row in sorted(bad)]
    keep = np.ones(table.num_rows, dtype=np.bool_)
    keep[list(bad)] = False
    good, none = conform(table.filter(pa.array(keep)), schema, required)
    assert not none
    return good, rejects


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])


def _refuse_hopeless(field: pa.Field, found: pa.DataType) -> None:
    """Raise InputError when no value of the type found could ever fit."""
    if found == field.type or pa.types.is_null(found):
        return
    try:
        _convert(pa.array([], found), field.type)
    except _FAULTS:
        raise InputError(
            f"column {field.name!r} is declared {field.type}, but the input has {found}, which "
            f"cannot be made into it; change the declared schema"
        ) from None


def _convert(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """``values`` as ``wanted``; raises one of _FAULTS if one of them cannot be."""
    found = values.type
    if pa.types.is_binary(found) and not pa.types.is_binary(wanted):
        values, found = values.cast(pa.string()), pa.string()
    if found == wanted:
        if pa.types.is_string(found) or pa.types.is_nested(found):
            values.validate(full=True)  # not every reader checks that text is UTF-8
        return values
    if pa.types.is_string(found) and pa.types.is_timestamp(wanted):
        return _parse_times(values, wanted)
    if pa.types.is_string(found) and not pa.types.is_nested(wanted):
        return pc.utf8_trim_whitespace(values).cast(wanted)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        return values.cast(wanted, safe=False)  # finer times are cut to microseconds
    return values.cast(wanted)


def _parse_times(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """ISO 8601 with or without a zone; without one it is UTC."""
    texts = pc.utf8_trim_whitespace(texts)
    zoned = pc.match_substring_regex(texts, _ZONE)
    # A date alone ends in something like -05, which is no zone.
    zoned = pc.and_(zoned, pc.greater(pc.utf8_length(texts), 10))
    nothing = pa.scalar(None, pa.string())
    with_zone = pc.if_else(zoned, texts, nothing).cast(TIME)
    without = pc.if_else(zoned, nothing, texts).cast(pa.timestamp("us"))
    local = wanted.tz is None
    return pc.coalesce(with_zone.cast(wanted), without if local else without.cast(wanted))


def _checked_range(values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(values.type) and len(values):
        ends = pc.min_max(values.cast(pa.int64()))
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is not None and not OLDEST_US <= low <= high <= NEWEST_US:
            raise pa.ArrowInvalid("the time is not between the years 1 and 9999")
    return values


def _bad_values(column: pa.Array, field: pa.Field) -> dict[int, str]:
    """The places in ``column`` whose value does not fit, each with the reason."""
    bad: dict[int, str] = {}
    parts = [(0, len(column))]
    while parts:
        start, count = parts.pop()
        part = column.slice(start, count)
        try:
            _checked_range(_convert(part, field.type))
        except _FAULTS:
            if count == 1:
                value = _readable(part[0])
                bad[start] = f"column {field.name!r}: {value!r} is not of type {field.type}"
            else:
                half = count // 2
                parts += [(start, half), (start + half, count - half)]
    return bad


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _booleans(values: pa.Array) -> npt.NDArray[np.bool_]:
    result: npt.NDArray[np.bool_] = values.to_numpy(zero_copy_only=False).astype(np.bool_)
    return result


def _shown(table: pa.Table, row: int) -> dict[str, object]:
    return {name: _readable(table[name][row]) for name in table.column_names}


def _readable(scalar: pa.Scalar) -> object:
    """A value for the dead-letter file; text that was read as bytes becomes text again."""
    try:
        value: object = scalar.as_py()
    except UnicodeDecodeError:
        value = scalar.cast(pa.binary()).as_py() if pa.types.is_string(scalar.type) else None
    except (ValueError, OverflowError):
        return str(scalar.cast(pa.int64()))  # a time that Python cannot hold
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
