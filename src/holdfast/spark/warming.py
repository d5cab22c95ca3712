"""Made-up tuples that warm a job up: Spark's first one takes seconds, whatever it computes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.state import EMPTY

_SAMPLE_TIME = 1_000_000
SET_TUPLES = 20


def warm_up(engine: Engine, tuples: int = SET_TUPLES) -> None:
    """Plan the job and run it once on made-up tuples, whose result goes."""
    tables = {name: sample(schema, tuples) for name, schema in engine.input_schemas.items()}
    bucket = Bucket(0, 2 * _SAMPLE_TIME, tables)
    try:
        engine.advance(EMPTY, [bucket], bucket.end)
    except Exception:
        # The query's own code may not like the tuples; it is planned all the same.
        return


def sample(schema: pa.Schema, tuples: int = SET_TUPLES) -> pa.Table:
    """Tuples with plain values: zeros, empty texts, nulls where nothing else is at hand."""
    one = pa.table([_value(field) for field in schema], schema=schema)
    return pa.concat_tables([one] * tuples).combine_chunks()


def _value(field: pa.Field) -> pa.Array:
    if field.name in ("stime", "tmax"):
        return pa.array([_SAMPLE_TIME], pa.int64()).cast(field.type)
    plain: list[Any] = [0, "", False, b""]
    for value in plain:
        try:
            return pa.array([value]).cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            continue
    return pa.nulls(1, field.type)
