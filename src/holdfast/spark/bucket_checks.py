"""What buckets must keep to, so that an advance means the same however input is divided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import HoldfastError
from holdfast.spark.state import State

if TYPE_CHECKING:
    from holdfast.spark.engine import Bucket


def check_times(bucket: Bucket, name: str, table: pa.Table) -> None:
    """A tuple in the wrong bucket would silently make results depend on the buckets."""
    times = pc.min_max(table["stime"].cast(pa.int64()))
    low, high = times["min"].as_py(), times["max"].as_py()
    if low is not None and (low < bucket.start or high >= bucket.end):
        raise HoldfastError(
            f"input {name!r}: bucket [{bucket.start}, {bucket.end}) has tuples with stime "
            f"{low} to {high}; put each tuple into the bucket of its stime"
        )


def checked_boundary(state: State, buckets: Sequence[Bucket], boundary: int | None) -> int:
    """How far an advance goes, if it can go there."""
    if boundary is None:
        if not buckets:
            raise HoldfastError("advance needs at least one bucket or a boundary")
        boundary = max(bucket.end for bucket in buckets)
    if boundary < state.boundary:
        raise HoldfastError(
            f"cannot go back: the state has reached {state.boundary}, the boundary is {boundary}"
        )
    for bucket in buckets:
        if bucket.start < state.boundary or bucket.end > boundary:
            raise HoldfastError(
                f"bucket [{bucket.start}, {bucket.end}) is not within the advance from "
                f"{state.boundary} to {boundary}"
            )
    return boundary
