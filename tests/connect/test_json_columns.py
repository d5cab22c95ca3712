"""Objects that are made of columns say the same as those that are made row by row."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.connect.json_columns import json_objects
from holdfast.connect.json_values import json_texts
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


def test_every_type_with_and_without_values() -> None:
    empty = dict.fromkeys(SCHEMA.names)
    same(pa.Table.from_pylist([FULL, empty, FULL], SCHEMA))
    same(pa.Table.from_pylist([empty], SCHEMA))
    same(SCHEMA.empty_table())
    same(pa.concat_tables([pa.Table.from_pylist([FULL], SCHEMA)] * 2))


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
    same(pa.table([pa.array([n for n, _ in rows], pa.float64()), [t for _, t in rows]], schema))
