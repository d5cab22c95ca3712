"""The engine of a fragment that merges the streams of shards: no operators, and no Spark.

Shards give their results in stream order, each those of its own keys. Up to a boundary that all of
them have reached, sorting what they gave gives what one replica would have given: the same order,
down to tuples that share time and ``seq``, and so the same ids and bits. A single engine's outputs
are sorted by the same function (``groups.in_stream_order``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.spark.bucket_checks import checked_boundary
from holdfast.spark.engine import Advance, Bucket, Engine
from holdfast.spark.groups import in_stream_order
from holdfast.spark.state import State
from holdfast.spark.task import FOREVER


@dataclass(frozen=True)
class Merge:
    """What a fragment merges: the streams it reads, with their schemas, and what becomes of them.

    outputs  the streams that each output is merged from.
    """

    inputs: Mapping[str, pa.Schema]
    outputs: Mapping[str, tuple[str, ...]]


class MergeEngine(Engine):
    """Merges streams; its states say how far, and nothing else."""

    def __init__(self, merge: Merge) -> None:
        self._merge = merge

    @property
    def input_schemas(self) -> Mapping[str, pa.Schema]:
        return self._merge.inputs

    def activate(self) -> None:
        """Nothing to do: there is no session."""

    def advance(
        self,
        state: State,
        buckets: Sequence[Bucket],
        boundary: int | None = None,
        windows: bool = False,
        large: bool = False,
    ) -> Advance:
        boundary = checked_boundary(state, buckets, boundary)
        merged = {}
        for output, streams in self._merge.outputs.items():
            parts = [
                bucket.tables[stream]
                for bucket in buckets
                for stream in streams
                if stream in bucket.tables
            ]
            table = pa.concat_tables(parts) if parts else self._schema_of(output).empty_table()
            merged[output] = in_stream_order(table) if table.num_rows > 1 else table
        return Advance(State(state.version + 1, boundary), merged)

    def due(self, state: State) -> int:
        return FOREVER

    def oldest_contributing(self, state: State, of: Collection[str] | None = None) -> int:
        return state.boundary

    def close(self) -> None:
        """Nothing to delete."""

    def _schema_of(self, output: str) -> pa.Schema:
        return self._merge.inputs[self._merge.outputs[output][0]]
