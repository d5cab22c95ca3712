"""Objects and arrays that are made of columns say the same as those that are made row by row."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.connect.json_columns import json_arrays, json_objects
from holdfast.connect.json_values import json_texts, jsonable
from holdfast.frames import TIME

WINDOW = pa.struct([("start", TIME), ("end", TIME)])
SCHEMA = pa.schema(
    [
        ("whole", pa.int64()),
        ("part", pa.float64()),
        ("text", pa.string()),
        ("yes", pa.bool_()),
        ("at", TIME),
        ("local", pa.timestamp("us")),
        ("elsewhere", pa.timestamp("us", tz="Europe/Berlin")),
        ("window", WINDOW),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("data", pa.binary()),
        ("list", pa.list_(pa.int64())),
        ('odd "name"', pa.int32()),
    ]
)
AT = datetime.datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=datetime.UTC)
FULL: dict[str, Any] = {
    "whole": -5,
    "part": 1.5,
    "text": "grüße",
    "yes": True,
    "at": AT,
    "local": AT.replace(tzinfo=None),
    "elsewhere": AT,
    "window": {"start": AT, "end": AT},
    "day": AT.date(),
    "price": decimal.Decimal("1.50"),
    "data": b"\0\1",
    "list": [1, None],
    'odd "name"': 3,
}


def same(table: pa.Table) -> None:
    found = [json.loads(each) for each in json_objects(table)]
    expected = [json.loads(each) for each in json_texts(table)]
    assert found == expected
    # Also by type: 1.0 is not 1.
    assert repr(found) == repr(expected)


def same_arrays(table: pa.Table) -> None:
    """To the letter: a key that is written otherwise is another key."""
    rows = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
    assert json_arrays(table) == [json.dumps(jsonable([*row])).encode() for row in rows]


def test_every_type_with_and_without_values() -> None:
    empty = dict.fromkeys(SCHEMA.names)
    same(pa.Table.from_pylist([FULL, empty, FULL], SCHEMA))
    same(pa.Table.from_pylist([empty], SCHEMA))
    same(SCHEMA.empty_table())
    same(pa.concat_tables([pa.Table.from_pylist([FULL], SCHEMA)] * 2))
    same_arrays(pa.Table.from_pylist([FULL, empty, FULL], SCHEMA))
    same_arrays(SCHEMA.empty_table())


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats(), st.integers(-(2**53), 2**53).map(float)),
            st.one_of(st.none(), st.text(st.characters(codec="utf-8"))),
        ),
        max_size=5,
    )
)
def test_numbers_and_texts(rows: list[tuple[float | None, str | None]]) -> None:
    schema = pa.schema([("number", pa.float64()), ("text", pa.string())])
    table = pa.table([pa.array([n for n, _ in rows], pa.float64()), [t for _, t in rows]], schema)
    same(table)
    same_arrays(table)


@given(st.lists(st.one_of(st.none(), st.datetimes()), max_size=5))
def test_times(times: list[datetime.datetime | None]) -> None:
    local = pa.array(times, pa.timestamp("us"))
    same(pa.table({"at": local.cast(pa.int64()).cast(TIME), "local": local}))


def test_a_part_of_a_table_is_judged_by_its_own_texts() -> None:
    table = pa.table({"text": ["plain", 'needs "escapes"', "plain, too", "a\\b"]})
    assert json_objects(table.slice(2, 1)) == [b'{"text": "plain, too"}']
    for first in range(4):
        same(table.slice(first, 1))
    same(table)
