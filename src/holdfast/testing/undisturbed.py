"""The oracle for deployments: the same tuples through the same fragments, undisturbed.

It reads what the entry points logged and advances the engine of each fragment, in one step,
over all of it. What a client of the deployment holds as stable must be exactly this, whatever
was killed in the meantime.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.core.frame import Kind
from holdfast.fragments import fragment_names, fragment_network
from holdfast.frames import SEQ
from holdfast.log import StreamLog
from holdfast.network import Network
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.state import EMPTY

FOREVER = 2**60


def logged_tuples(directory: Path) -> pa.Table:
    """Every stable tuple of a log: stime, tmax and the stream's own columns."""
    with StreamLog.open(directory, read_only=True) as log:
        batches = []
        with log.replay(from_id=log.first_id) as reader:
            for _, frame in reader:
                if frame.kind is Kind.STABLE:
                    batches.append(frame.batch)
        return pa.Table.from_batches(batches, schema=log.schema)


def undisturbed(
    network: Network, sources: Mapping[str, pa.Table], boundary: int = FOREVER
) -> dict[str, pa.Table]:
    """Every stream of the network up to ``boundary``, for these source tuples, from id 0 on."""
    streams = dict(sources)
    for name in fragment_names(network):
        engine = Engine(fragment_network(network, name))
        try:
            tables = {
                stream: _numbered(streams[stream], schema, boundary)
                for stream, schema in engine.input_schemas.items()
            }
            result = engine.advance(EMPTY, [Bucket(0, boundary, tables)], boundary)
            for stream, table in result.outputs.items():
                streams[stream] = table
        finally:
            engine.close()
    return {stream: without_seq(table) for stream, table in streams.items()}


def without_seq(table: pa.Table) -> pa.Table:
    """What a client sees of a stream's tuples."""
    return table.drop_columns([SEQ.name]) if SEQ.name in table.column_names else table


def _numbered(table: pa.Table, schema: pa.Schema, boundary: int) -> pa.Table:
    if SEQ.name not in table.column_names:
        ids = pa.array(np.arange(table.num_rows, dtype=np.int64))
        table = table.append_column(SEQ.name, ids)
    due = table["stime"].cast(pa.int64()).to_numpy() < boundary
    return table.filter(pa.array(due)).select(schema.names).cast(schema)
