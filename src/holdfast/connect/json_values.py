"""Arrow values as JSON: times in ISO 8601 with Z, decimals as text, bytes in base64."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math

import pyarrow as pa


def json_lines(table: pa.Table) -> str:
    """The rows as JSON objects, one a line."""
    return "".join(f"{line}\n" for line in json_texts(table))


def json_texts(table: pa.Table) -> list[str]:
    """The rows as JSON objects."""
    names = table.column_names
    columns = [_column(table[name]) for name in names]
    rows = zip(*columns, strict=True)
    encode = _ENCODER.encode
    try:
        return [encode(dict(zip(names, row, strict=True))) for row in rows]
    except ValueError:  # a NaN or an infinity, which JSON has no word for
        rows = zip(*columns, strict=True)
        return [encode(jsonable(dict(zip(names, row, strict=True)))) for row in rows]


def _column(column: pa.ChunkedArray) -> list[object]:
    values: list[object] = column.to_pylist()
    return values


def jsonable(value: object) -> object:
    """``value`` with everything in it that JSON lacks put into a text."""
    if isinstance(value, dict):
        return {str(key): jsonable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value is None or isinstance(value, str | int | float):
        return value
    return _other(value)


def _other(value: object) -> str:
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return str(value)
    return str(value)


_ENCODER = json.JSONEncoder(default=_other, allow_nan=False, separators=(", ", ": "))
