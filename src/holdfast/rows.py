"""Rows that a program hands over, as the columns a source declares; what does not fit is named."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from holdfast.errors import InputError

_FAULTS = (pa.ArrowException, ValueError, TypeError, OverflowError)


def fit_table(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """A table's columns as ``schema`` has them; InputError if they are others."""
    _refuse_unknown(table.column_names, schema, where)
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise InputError(f"{where} has a column {missing[0]!r}; the rows have {table.column_names}")
    columns = []
    for field in schema:
        found = table[field.name]
        try:
            columns.append(found.cast(field.type))
        except _FAULTS as error:
            raise InputError(
                f"{where}: column {field.name!r} is declared {field.type}; the rows have "
                f"{found.type}, and {_first_line(error)}"
            ) from None
    return _checked(pa.table(columns, names=schema.names), schema, where)


def table_of(
    rows: Sequence[Mapping[str, Any]], schema: pa.Schema, required: Collection[str], where: str
) -> pa.Table:
    """Dictionaries as a table; one may leave out what can be null and is not ``required``."""
    known = set(schema.names)
    for number, row in enumerate(rows):
        if row.keys() == known:
            continue
        _refuse_unknown(row, schema, f"row {number}: {where}")
        for field in schema:
            if field.name not in row and (not field.nullable or field.name in required):
                raise InputError(
                    f"row {number}: {where} has a column {field.name!r} that must have a value; "
                    f"the row has {list(row)}"
                )
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        try:
            columns.append(_column(values, field.type))
        except _FAULTS:
            raise _bad_value(values, field, where) from None
    return _checked(pa.table(columns, names=schema.names), schema, where)


def _column(values: list[Any], wanted: pa.DataType) -> pa.Array:
    if pa.types.is_integer(wanted):  # asked for integers, Arrow would make 1 of 1.5
        return pa.array(values).cast(wanted)
    return pa.array(values, wanted)


def _refuse_unknown(names: Collection[str], schema: pa.Schema, where: str) -> None:
    for name in names:
        if name not in schema.names:
            raise InputError(
                f"{where} has no column {name!r}; it has {schema.names}. Leave it out, or declare "
                f"it in the network"
            )


def _bad_value(values: list[Any], field: pa.Field, where: str) -> InputError:
    """Which of the values does not fit."""
    for number, value in enumerate(values):
        try:
            _column([value], field.type)
        except _FAULTS as error:
            return InputError(
                f"{where}: column {field.name!r} is declared {field.type}; row {number} has "
                f"{value!r} ({_first_line(error)})"
            )
    return InputError(f"{where}: column {field.name!r} is declared {field.type}")


def _checked(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    for field in schema:
        if not field.nullable and table[field.name].null_count:
            raise InputError(
                f"{where}: column {field.name!r} is declared NOT NULL; the rows have "
                f"{table[field.name].null_count} nulls in it"
            )
    return table.cast(schema)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
