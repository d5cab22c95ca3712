"""A state that was handed over, as a log with continuous checkpoints has it.

A new shard takes over the rows of its slots, out of the states of others at one boundary
(``core.succession``). From then on its state is in its log, window by window; so all of them are
written there, as of that boundary, as if each had been written again just then. What a log leaves
to the input, which is what joins remember, comes from the input here, too.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from holdfast.core.continuous_rounds import window_frames
from holdfast.core.frame import Kind
from holdfast.core.records import LoggedStream
from holdfast.kept.continuous_reader import blocks
from holdfast.packed import PackedPart, PackedState
from holdfast.spark.continuous_files import PARTITION
from holdfast.spark.continuous_states import WindowBatch
from holdfast.spark.engine import Engine
from holdfast.spark.runs import VERSION
from holdfast.spark.task import DERIVED, LAZY


def logged_windows(engine: Engine, stream: str, packed: PackedState, boundary: int) -> LoggedStream:
    """What the log of ``stream``, which begins at ``boundary``, is to have of a whole state."""
    operators = {each.name: each.stateful for each in engine.stateful}
    families: dict[tuple[str, str], list[pa.Table]] = {}
    windows = 0
    for part in packed.parts:
        stateful, lazy = operators[part.operator], engine.keeps[part.operator] == LAZY
        accumulates = stateful.row_keys(part.family) is None
        if part.family in DERIVED or (lazy and accumulates):
            continue
        windows += part.rows.num_rows if stateful.counts(part.family) else 0
        families.setdefault((part.operator, part.family), []).append(_numbered(part))
    batches = []
    for (operator, family), tables in families.items():
        kind = Kind.WINDOW_OPEN if engine.keeps[operator] == LAZY else Kind.WINDOW_CHECK
        rows = pa.concat_tables(tables, promote_options="default")
        # From the beginning on: there is nothing older of it in this log.
        batches.append(WindowBatch(kind, operator, family, 0, boundary, rows))
    states = sum(each.rows.num_rows for each in batches)
    note = {
        "open_windows": windows,
        "extent_from": boundary,
        "extent": states,
        "replay_from": boundary,
    }
    return LoggedStream(stream, boundary, window_frames(blocks(batches, note), boundary))


def _numbered(part: PackedPart) -> pa.Table:
    """The rows of a partition as the log has them: with its number, without their versions."""
    number = pa.array(np.full(part.rows.num_rows, part.partition, dtype=np.int32))
    return part.rows.drop_columns([VERSION]).add_column(0, PARTITION, number)
