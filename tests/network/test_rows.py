"""What a program hands over: the column that does not fit is named."""

from __future__ import annotations

import pyarrow as pa
import pytest

from holdfast.errors import InputError
from holdfast.rows import fit_table, table_of

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("value", pa.int64(), nullable=False),
        pa.field("note", pa.string()),
    ]
)
WHERE = "source 'load'"


def test_rows_that_fit_come_out_as_declared() -> None:
    table = table_of(
        [{"name": "a", "value": 1}, {"note": "b", "value": 2, "name": None}], SCHEMA, (), WHERE
    )
    assert table.schema == SCHEMA
    assert table["note"].to_pylist() == [None, "b"]
    assert table_of([], SCHEMA, (), WHERE).num_rows == 0
    mixed = pa.table({"value": pa.array([1], pa.int8()), "note": ["x"], "name": ["a"]})
    assert fit_table(mixed, SCHEMA, WHERE).schema == SCHEMA


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"name": "a", "value": "x"}, "column 'value' is declared int64; row 1 has 'x'"),
        ({"name": "a", "value": 1.5}, "column 'value' is declared int64; row 1 has 1.5"),
        ({"name": "a", "value": 1 << 70}, "column 'value' is declared int64; row 1 has 118"),
        ({"name": 7, "value": 1}, "column 'name' is declared string; row 1 has 7"),
        ({"name": "a", "value": 1, "vlaue": 2}, "row 1: source 'load' has no column 'vlaue'"),
        ({"name": "a"}, "row 1: source 'load' has a column 'value' that must have a value"),
        ({"value": 1}, "row 1: source 'load' has a column 'name' that must have a value"),
        ({"name": "a", "value": None}, "column 'value' is declared NOT NULL; the rows have 1"),
    ],
)
def test_a_row_that_does_not_fit_is_named(row: dict[str, object], words: str) -> None:
    rows = [{"name": "good", "value": 0}, row]
    with pytest.raises(InputError) as raised:
        table_of(rows, SCHEMA, {"name"}, WHERE)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"value": ["x"]}, "column 'value' is declared int64; the rows have string, and Failed"),
        ({"other": [1]}, "source 'load' has no column 'other'; it has ['name', 'value', 'note']"),
        ({"note": None}, "source 'load' has a column 'note'; the rows have ['name', 'value']"),
    ],
)
def test_a_table_that_does_not_fit_is_named(columns: dict[str, object], words: str) -> None:
    found = {"name": ["a"], "value": [1], "note": ["b"], **columns}
    table = pa.table({name: values for name, values in found.items() if values is not None})
    with pytest.raises(InputError) as raised:
        fit_table(table, SCHEMA, WHERE)
    assert words in str(raised.value)
