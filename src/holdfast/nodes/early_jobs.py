"""Computes early results on Spark, beside the other jobs of a replica, in a thread of its own.

An early job (``core.early_lane``) has no state: its engine is that of the part of the fragment
which looks at one tuple at a time, and every job starts from nothing. It is made when the first one
comes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pyarrow as pa

from holdfast.blocks import Block
from holdfast.chosen import claims_of, mask_of, seqs_of
from holdfast.core.effects import EarlyPiece, RunEarly
from holdfast.core.events import EarlyDone, EarlyFailed, Event
from holdfast.core.provenance import Claim
from holdfast.nodes.jobs import Int64s, micros, one_table, output_block, read_slice
from holdfast.spark.chains import Workshop
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.faults import explain_job
from holdfast.spark.state import EMPTY


class EarlyJobs:
    """The executor of one replica's early lane."""

    def __init__(
        self,
        workshop: Workshop,
        outputs: Iterable[str],
        post: Callable[[Event], None],
        on_block: Callable[[Block], None] = lambda block: None,
    ) -> None:
        """``on_block`` is shown every block of results."""
        self._workshop = workshop
        self._outputs = tuple(outputs)
        self._post = post
        self._on_block = on_block
        self._engine: Engine | None = None
        self._queue: queue.SimpleQueue[RunEarly | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="holdfast-early", daemon=True)

    def start(self) -> None:
        if self._outputs:
            self._thread.start()

    def submit(self, order: RunEarly) -> None:
        self._queue.put(order)

    def close(self) -> None:
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(30.0)
        if self._engine is not None:
            self._engine.close()

    def _run(self) -> None:
        while (order := self._queue.get()) is not None:
            try:
                done = self._carry_out(order)
            except Exception as error:
                self._post(EarlyFailed(order.job, explain_job(error)))
            else:
                self._post(done)

    def _open(self) -> Engine:
        if self._engine is None:
            self._engine = self._workshop.engine().part(self._outputs)
            self._engine.activate()
        return self._engine

    def _carry_out(self, order: RunEarly) -> EarlyDone:
        engine = self._open()
        tables, found = early_tables(order.pieces, engine.input_schemas)
        newest = max((int(micros(table["stime"]).max()) for table in tables.values()), default=0)
        bucket = Bucket(EMPTY.boundary, newest + 1, tables)
        advance = engine.advance(EMPTY, [bucket], bucket.end)
        blocks = [output_block(name, table, 0) for name, table in advance.outputs.items()]
        for block in blocks:
            if isinstance(block.block, Block):
                self._on_block(block.block)
        return EarlyDone(order.job, tuple(each for each in blocks if each.count), found)


def early_tables(
    pieces: Iterable[EarlyPiece], schemas: Mapping[str, pa.Schema]
) -> tuple[dict[str, pa.Table], tuple[tuple[Claim, ...], ...]]:
    """The tuples of each input as one table, and what those pieces can claim that say nothing."""
    batches: dict[str, list[pa.RecordBatch]] = {}
    ids: dict[str, list[Int64s]] = {}
    found = []
    for piece in pieces:
        stream = piece.slice.stream
        batch, its_ids, _ = read_slice(piece.slice)
        if piece.choice is not None:
            mask = mask_of(seqs_of(batch), piece.choice)
            batch, its_ids = batch.filter(pa.array(mask)), its_ids[mask]
        if not piece.claims:
            found.append(claims_of(seqs_of(batch), piece.trails, piece.slice.header.stime_max))
        if batch.num_rows:
            batches.setdefault(stream, []).append(batch)
            ids.setdefault(stream, []).append(its_ids)
    tables = {
        stream: one_table(batches[stream], np.concatenate(ids[stream]), schemas[stream])
        for stream in batches
    }
    return tables, tuple(found)
