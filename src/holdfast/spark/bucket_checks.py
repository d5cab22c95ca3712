"""What buckets must keep to, so that an advance means the same however input is divided."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.errors import HoldfastError
from holdfast.spark.runs import numbers, one_array
from holdfast.spark.state import State

if TYPE_CHECKING:
    from holdfast.spark.engine import Bucket


def check_inputs(buckets: Sequence[Bucket], known: Collection[str]) -> None:
    """Tuples are of inputs that there are, and in the buckets of their times."""
    for bucket in buckets:
        for name, table in bucket.tables.items():
            if name not in known:
                raise HoldfastError(
                    f"bucket {bucket.start}: there is no input {name!r}; the network has "
                    f"{sorted(known)}"
                )
            check_times(bucket, name, table)


def check_times(bucket: Bucket, name: str, table: pa.Table) -> None:
    """A tuple in the wrong bucket would silently make results depend on the buckets."""
    times = one_array(table["stime"])
    if times.null_count:
        times = times.drop_null()
    if not len(times):
        return
    times = numbers(times if times.type == pa.int64() else times.cast(pa.int64()))
    low, high = int(times.min()), int(times.max())
    if low < bucket.start or high >= bucket.end:
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
