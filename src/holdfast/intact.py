"""Is a batch from outside what it claims to be?

Arrow hands buffers over as they are: an offset that points behind its buffer is found by nobody
until something reads there, which may end the process or give away what lies there in memory. So
every batch that comes from another process is looked at in full before anything else is done with
it. A column of text that is no UTF-8 is another matter: it is a row's fault, not the batch's, and
is left to whoever looks at rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from holdfast.errors import InputError

# A batch from a producer; what one of ours sends is far below.
LARGEST_BATCH_BYTES = 64 << 20


def check_intact(batch: pa.RecordBatch | pa.Table, from_whom: str) -> None:
    """InputError if a column's buffers cannot be what its type says."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        for chunk in chunks:
            try:
                _without_text(chunk).validate(full=True)
            except pa.ArrowException as error:
                raise InputError(
                    f"{from_whom}: column {name!r} is malformed Arrow, nothing of its batch was "
                    f"taken: {error}"
                ) from None


def check_size(batch: pa.RecordBatch, from_whom: str) -> None:
    """InputError if a batch is larger than anybody needs to send at once."""
    if batch.nbytes > LARGEST_BATCH_BYTES:
        raise InputError(
            f"{from_whom}: a batch of {batch.nbytes:,} bytes is too large, at most "
            f"{LARGEST_BATCH_BYTES:,} are taken; send fewer rows at a time"
        )


def small_enough(table: pa.Table, what: str, first: int = 0) -> Iterator[pa.Table]:
    """The rows in tables that are small enough to be sent; InputError if one row is not."""
    if table.nbytes <= LARGEST_BATCH_BYTES:
        yield table
    elif table.num_rows == 1:
        raise InputError(
            f"{what}: row {first} has {table.nbytes:,} bytes, at most {LARGEST_BATCH_BYTES:,} are "
            f"taken"
        )
    else:
        half = table.num_rows // 2
        yield from small_enough(table.slice(0, half), what, first)
        yield from small_enough(table.slice(half), what, first + half)


def _without_text(array: pa.Array) -> pa.Array:
    """The same buffers with bytes in place of text."""
    wanted = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(array.type)
    if wanted is None:
        return array
    return pa.Array.from_buffers(wanted, len(array), array.buffers(), offset=array.offset)
