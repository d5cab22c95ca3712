"""Computes early results on Spark, beside the other jobs of a replica, in a thread of its own.

An early job (``core.early_lane``) has no state: its engine is that of the part of the fragment
which looks at one tuple at a time, and every job starts from nothing. It is made when the first one
comes. So is that of looks at the joins (``core.pairs``), which begin with the state of the stable
version and forget what comes of it. A job that goes ahead of the order (``core.ahead``) keeps it,
for the next one: it runs on the fragment's own engine."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.blocks import Block
from holdfast.chosen import (
    came_by,
    claims_of,
    each_alone,
    first_of_each,
    mask_of,
    seqs_of,
    stimes_of,
)
from holdfast.core.effects import EarlyPiece, RunAhead, RunEarly, RunPairs
from holdfast.core.events import (
    AheadDone,
    AheadFailed,
    Beside,
    EarlyDone,
    EarlyFailed,
    Event,
    OutputBlock,
    PairsDone,
    PairsFailed,
)
from holdfast.core.provenance import Choice, Claim, Trail
from holdfast.core.settings import Output
from holdfast.nodes.jobs import Int64s, input_tables, micros, one_table, output_block, read_slice
from holdfast.spark.chains import Workshop
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.faults import explain_job
from holdfast.spark.state import EMPTY

Order: TypeAlias = RunEarly | RunAhead | RunPairs
_FAILED: dict[type[Order], Callable[[int, str], Beside]] = {
    RunEarly: EarlyFailed,
    RunAhead: AheadFailed,
    RunPairs: PairsFailed,
}


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
        self._engines: dict[tuple[str, ...], Engine] = {}
        self._queue: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="holdfast-early", daemon=True)

    def start(self) -> None:
        if self._is_needed:
            self._thread.start()

    def submit(self, order: Order) -> None:
        self._queue.put(order)

    def close(self) -> None:
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(30.0)
        for engine in self._engines.values():
            engine.close()

    def _run(self) -> None:
        while (order := self._queue.get()) is not None:
            try:
                self._post(self._carry_out(order))
            except Exception as error:
                self._post(_FAILED[type(order)](order.job, explain_job(error)))

    def _part(self, outputs: tuple[str, ...]) -> Engine:
        """The engine for small jobs of some outputs."""
        if outputs not in self._engines:
            self._engines[outputs] = self._workshop.engine().part(outputs)
            self._engines[outputs].activate()
        return self._engines[outputs]

    def _carry_out(self, order: Order) -> Beside:
        match order:
            case RunEarly():
                return self._look_at(order)
            case RunAhead():
                return self._go_ahead(order)
            case RunPairs():
                return self._find_pairs(order)

    def _look_at(self, order: RunEarly) -> EarlyDone:
        engine = self._part(tuple(self._outputs))
        tables, found = early_tables(order.pieces, engine.input_schemas)
        newest = max((int(micros(table["stime"]).max()) for table in tables.values()), default=0)
        bucket = Bucket(EMPTY.boundary, newest + 1, tables)
        seen = engine.look(EMPTY, [bucket], bucket.end)
        made = {name: _without(table, self._outputs[name]) for name, table in seen.items()}
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

    def _find_pairs(self, order: RunPairs) -> PairsDone:
        engine = self._part(tuple(stream for stream, _, _ in order.wanted))
        state = self._workshop.state(order.state)  # type: ignore[arg-type]
        tables = pair_tables(order, engine.input_schemas)
        newest = max((int(micros(table["stime"]).max()) for table in tables.values()), default=-1)
        start = max(order.start, state.boundary)
        if newest < start:
            return PairsDone(order.job, (), ())
        seen = engine.look(state, [Bucket(start, newest + 1, tables)], newest + 1)
        made: dict[str, pa.Table] = {}
        found = []
        left = order.most
        for stream, trails, known in order.wanted:
            table, claims = _new_pairs(seen[stream], trails, known, left)
            left -= len(claims)
            if claims:
                made[stream] = table
                found.append((stream, claims))
        return PairsDone(order.job, self._blocks(made), tuple(found))

    def _blocks(self, tables: Mapping[str, pa.Table]) -> tuple[OutputBlock, ...]:
        blocks = [output_block(name, table, 0) for name, table in tables.items() if table.num_rows]
        for block in blocks:
            if isinstance(block.block, Block):
                self._on_block(block.block)
        return tuple(blocks)


def _new_pairs(
    table: pa.Table, trails: Sequence[Trail], known: tuple[Claim, ...], most: int
) -> tuple[pa.Table, tuple[Claim, ...]]:
    """The tuples that came by some trails and are not known, of so many pairs, each claimed."""
    seqs, stimes = table["seq"].to_numpy(), micros(table["stime"])
    mask = came_by(seqs, trails) & mask_of(seqs, stimes, Choice(known, inside=False))
    claims = each_alone(seqs[mask], stimes[mask], trails)
    if len(claims) > most:
        claims = claims[:most]
        mask &= mask_of(seqs, stimes, Choice(claims, inside=True))
    return table.filter(pa.array(mask)), claims


def pair_tables(order: RunPairs, schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
    """All tuples that have come of each input: in order, and early."""
    found = {stream: [table] for stream, table in input_tables(order.slices, schemas).items()}
    early: dict[str, list[pa.Table]] = {}
    for piece in order.pieces:
        for stream, table in early_tables([piece], schemas)[0].items():
            early.setdefault(stream, []).append(table)
    for stream, tables in early.items():
        numbers = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
        table = pa.concat_tables(tables)
        mask = first_of_each(table["seq"].to_numpy(), micros(table["stime"]), numbers)
        found.setdefault(stream, []).append(table.filter(pa.array(mask)))
    return {stream: pa.concat_tables(tables) for stream, tables in found.items()}


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
