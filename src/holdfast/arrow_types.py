"""Spark's types as Arrow has them, whichever PySpark is installed.

PySpark 4.3 asks for the time zone of timestamps; those before it take UTC unless told otherwise.
"""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas import types as pandas_types
from pyspark.sql.types import DataType, StructType

_given = inspect.signature(pandas_types.to_arrow_type).parameters
_OPTIONS: dict[str, Any] = {"timezone": "UTC"} if "timezone" in _given else {}


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type Spark gives values of ``kind``."""
    return pandas_types.to_arrow_type(kind, prefers_large_types=False, **_OPTIONS)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema Spark gives data of ``schema``."""
    return pandas_types.to_arrow_schema(schema, prefers_large_types=False, **_OPTIONS)
