"""The types are the same whichever PySpark says them."""

from __future__ import annotations

import importlib

import pyarrow as pa
import pytest
from pyspark.sql.pandas import types as pandas_types
from pyspark.sql.types import DataType, StructType, TimestampType

from holdfast import arrow_types

UTC = pa.timestamp("us", tz="UTC")


def test_timestamps_are_utc() -> None:
    assert arrow_types.arrow_type(TimestampType()) == UTC
    schema = arrow_types.arrow_schema(StructType().add("at", TimestampType()))
    assert schema.field("at").type == UTC


def test_a_pyspark_that_asks_for_no_time_zone_is_not_given_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As PySpark had it before 4.3."""

    def to_arrow_type(
        kind: DataType, timestamp_utc: bool = True, prefers_large_types: bool = False
    ) -> pa.DataType:
        return UTC if timestamp_utc else None

    with monkeypatch.context() as older:
        older.setattr(pandas_types, "to_arrow_type", to_arrow_type)
        importlib.reload(arrow_types)
        assert arrow_types.arrow_type(TimestampType()) == UTC
    importlib.reload(arrow_types)
