"""Malformed Arrow is found before anything reads it."""

from __future__ import annotations

import contextlib
import ctypes

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.intact import LARGEST_BATCH_BYTES, check_intact, check_size


def broken(array: pa.Array, buffer: int, *values: int) -> pa.RecordBatch:
    """A batch of the array, with the first numbers of a buffer replaced behind Arrow's back.

    The buffers are those of the array and its children, in order.
    """
    batch = one(array)
    view = np.frombuffer(array.buffers()[buffer], dtype=np.int32)
    address, _ = view.__array_interface__["data"]
    ctypes.memmove(address, np.array(values, dtype=np.int32).tobytes(), 4 * len(values))
    return batch


def text(*values: str | bytes) -> pa.Array:
    return pa.array(values, pa.string())


def one(column: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([column], names=["text"])


def malformed() -> list[pa.RecordBatch]:
    struct = pa.StructArray.from_arrays([text("abc")], names=["inner"])
    numbers = pa.array([[1, 2]], pa.list_(pa.int64()))
    return [
        broken(text("abc"), 1, 0, 1 << 30),
        broken(text("abc", "def"), 1, 0, 5, 2),
        broken(text("abc"), 1, -5),
        broken(struct, 2, 0, 1 << 30),
        broken(pa.array([["abc", "def"]]), 3, 0, 9, 2),
        broken(numbers, 1, 0, 1 << 30),
        broken(pa.array([{"a": "b"}], pa.map_(pa.string(), pa.string())), 1, 0, 1 << 30),
        broken(pa.array(["a", "b"]).dictionary_encode(), 1, 7, 9),
    ]


@pytest.mark.parametrize(
    "batch",
    malformed(),
    ids=lambda batch: str(batch.schema.types[0]),
)
def test_offsets_that_point_nowhere_are_found(batch: pa.RecordBatch) -> None:
    with pytest.raises(InputError, match="'p': column 'text' is malformed Arrow, nothing of its"):
        check_intact(batch, "producer 'p'")
    with pytest.raises(InputError, match="malformed"):
        check_intact(pa.Table.from_batches([batch]), "producer 'p'")


def test_text_that_is_no_text_is_a_row_s_fault() -> None:
    bad = pa.array([b"\xff\xfe"]).view(pa.string())
    check_intact(one(bad), "p")
    check_intact(one(pa.array(["a", None, "b"]).slice(1)), "p")


def test_batches_are_bounded() -> None:
    wide = pa.record_batch({"data": pa.array([b"x" * (LARGEST_BATCH_BYTES + 1)])})
    with pytest.raises(InputError, match="too large, at most 67,108,864 are taken"):
        check_size(wide, "p")
    check_size(wide.slice(0, 0), "p")


@given(st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 9), min_size=4, max_size=4))
def test_whatever_passes_can_be_read(offsets: list[int]) -> None:
    for each in (pa.array([b"abc", b"def", b"ghi"]), pa.array([[1], [2], [3]])):
        batch = broken(each, 1, *offsets)
        with contextlib.suppress(InputError):
            check_intact(batch, "p")
            batch.to_pylist()
