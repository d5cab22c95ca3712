"""Computes early results on Spark, beside the other jobs of a replica, in a thread of its own.

An early job (``core.early_lane``) has no state: its engine is that of the part of the fragment
which looks at one tuple at a time, and every job starts from nothing. It is made when the first one
comes. A job that goes ahead of the order (``core.ahead``) has one, which is that of the stable
version or came of such a job: it runs on the fragment's own engine."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.blocks import Block
from holdfast.chosen import came_by, claims_of, mask_of, seqs_of, stimes_of
from holdfast.core.effects import EarlyPiece, RunAhead, RunEarly
from holdfast.core.events import (
    AheadDone,
    AheadFailed,
    EarlyDone,
    EarlyFailed,
    Event,
    OutputBlock,
)
from holdfast.core.provenance import Choice, Claim, Trail
from holdfast.core.settings import Output
from holdfast.nodes.jobs import Int64s, input_tables, micros, one_table, output_block, read_slice
from holdfast.spark.chains import Workshop
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.faults import explain_job
from holdfast.spark.state import EMPTY


class EarlyJobs:
    """The executor of one replica's early lane."""

    def __init__(
        self,
        workshop: Workshop,
        outputs: Iterable[Output],
        post: Callable[[Event], None],
        on_block: Callable[[Block], None] = lambda block: None,
    ) -> None:
        """``on_block`` is shown every block of results."""
        self._workshop = workshop
        early = [one for one in outputs if one.ways or one.memory]
        self._is_needed = bool(early)
        # By which trails results of theirs come that need more than one tuple.
        self._outputs = {
            one.stream: tuple(trail for trail, _ in one.memory) for one in early if one.ways
        }
        self._post = post
        self._on_block = on_block
        self._engine: Engine | None = None
        self._queue: queue.SimpleQueue[RunEarly | RunAhead | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="holdfast-early", daemon=True)

    def start(self) -> None:
        if self._is_needed:
            self._thread.start()

    def submit(self, order: RunEarly | RunAhead) -> None:
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
                self._post(self._carry_out(order))
            except Exception as error:
                failed = EarlyFailed if isinstance(order, RunEarly) else AheadFailed
                self._post(failed(order.job, explain_job(error)))

    def _open(self) -> Engine:
        if self._engine is None:
            self._engine = self._workshop.engine().part(self._outputs)
            self._engine.activate()
        return self._engine

    def _carry_out(self, order: RunEarly | RunAhead) -> EarlyDone | AheadDone:
        return self._go_ahead(order) if isinstance(order, RunAhead) else self._look_at(order)

    def _look_at(self, order: RunEarly) -> EarlyDone:
        engine = self._open()
        tables, found = early_tables(order.pieces, engine.input_schemas)
        newest = max((int(micros(table["stime"]).max()) for table in tables.values()), default=0)
        bucket = Bucket(EMPTY.boundary, newest + 1, tables)
        advance = engine.advance(EMPTY, [bucket], bucket.end)
        made = {
            name: _without(table, self._outputs[name]) for name, table in advance.outputs.items()
        }
        return EarlyDone(order.job, self._blocks(made), found)

    def _go_ahead(self, order: RunAhead) -> AheadDone:
        engine = self._workshop.engine()
        engine.activate()
        state = self._workshop.state(order.state)  # type: ignore[arg-type]
        tables = input_tables(order.slices, engine.input_schemas)
        bucket = Bucket(max(order.start, state.boundary), order.stop, tables)
        advance = engine.advance(state, [bucket], order.stop)
        made = {
            stream: _of_claims(advance.outputs[stream], claims) for stream, claims in order.claims
        }
        return AheadDone(order.job, advance.state, self._blocks(made))

    def _blocks(self, tables: Mapping[str, pa.Table]) -> tuple[OutputBlock, ...]:
        blocks = [output_block(name, table, 0) for name, table in tables.items() if table.num_rows]
        for block in blocks:
            if isinstance(block.block, Block):
                self._on_block(block.block)
        return tuple(blocks)


def _without(table: pa.Table, trails: Sequence[Trail]) -> pa.Table:
    """The tuples that came by other trails."""
    if not trails or not table.num_rows:
        return table
    return table.filter(pa.array(~came_by(table["seq"].to_numpy(), trails)))


def _of_claims(table: pa.Table, claims: tuple[Claim, ...]) -> pa.Table:
    """The tuples that are claimed."""
    mask = mask_of(table["seq"].to_numpy(), micros(table["stime"]), Choice(claims, inside=True))
    return table.filter(pa.array(mask))


def _wanted(batch: pa.RecordBatch, piece: EarlyPiece) -> npt.NDArray[np.bool_]:
    """Which tuples of a piece are computed."""
    seqs = seqs_of(batch)
    by_trail = np.ones(len(seqs), np.bool_) if piece.claims else came_by(seqs, piece.trails)
    if piece.choice is None:
        return by_trail
    return by_trail & mask_of(seqs, stimes_of(batch), piece.choice)


def early_tables(
    pieces: Iterable[EarlyPiece], schemas: Mapping[str, pa.Schema]
) -> tuple[dict[str, pa.Table], tuple[tuple[Claim, ...], ...]]:
    """The tuples of each input as one table, and what those pieces can claim that say nothing."""
    batches: dict[str, list[pa.RecordBatch]] = {}
    ids: dict[str, list[Int64s]] = {}
    found = []
    for piece in pieces:
        claims: tuple[Claim, ...] = ()
        for each in piece.slices:
            batch, its_ids, _ = read_slice(each)
            if piece.choice is not None or not piece.claims:
                mask = _wanted(batch, piece)
                batch, its_ids = batch.filter(pa.array(mask)), its_ids[mask]
            if not piece.claims:
                claims += claims_of(seqs_of(batch), piece.trails, each.header.stime_max)
            if batch.num_rows:
                batches.setdefault(each.stream, []).append(batch)
                ids.setdefault(each.stream, []).append(its_ids)
        if not piece.claims:
            found.append(claims)
    tables = {
        stream: one_table(batches[stream], np.concatenate(ids[stream]), schemas[stream])
        for stream in batches
    }
    return tables, tuple(found)
