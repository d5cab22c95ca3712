"""A fragment with continuous checkpoints, without processes: an engine, a log, and crashes.

After a crash nothing is left but the log and the small record a replica keeps.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from holdfast import Network
from holdfast.core.frame import Kind
from holdfast.core.settings import Continuous
from holdfast.frames import Frame, data_frame, stream_schema
from holdfast.kept.continuous_recovery import load, read_extent
from holdfast.log import Durability, LogOptions, StreamLog
from holdfast.spark.continuous_states import WindowBatch
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.state import EMPTY, State
from holdfast.testing import split
from holdfast.testing.continuous_rounds import Rounds
from tests.blocks_for_tests import boundary_frame

OPTIONS = LogOptions(durability=Durability.INTERVAL, segment_bytes=1 << 16, preallocate_bytes=0)


@dataclass(frozen=True)
class Record:
    """What a replica keeps beside its log: where its state was, and what a restart needs."""

    boundary: int
    extent_from: int
    replay_from: int
    next_id: int


@dataclass
class Fragment:
    """One incarnation after the other of a fragment; time passes at random."""

    network: Network
    directory: Path
    settings: Continuous
    tables: dict[str, pa.Table]
    rng: random.Random
    records: list[Record] = field(default_factory=list)
    crashes: int = 0

    def __post_init__(self) -> None:
        self.now = 0
        self.state: State = EMPTY
        self._start()

    def _start(self, engine: Engine | None = None) -> None:
        self.engine = engine or Engine(self.network)
        first = next(iter(self.network.outputs))
        schema = self.engine._nothing()[first].drop_columns(["seq"]).schema
        self.first = first
        self.log = StreamLog.open(
            self.directory, stream_schema(pa.schema(list(schema)[2:])), options=OPTIONS
        )
        self.checkpoints = Rounds(self.engine, self.settings, clock=self.clock)

    def clock(self) -> int:
        self.now += self.rng.choice([0, 100, 1_000, 50_000])
        return self.now

    def advance(self, buckets: Sequence[Bucket]) -> dict[str, pa.Table]:
        """One job, and what a replica writes for it."""
        before, start, stop = self.state, self.state.boundary, buckets[-1].end
        checks = self.checkpoints.finish_round()
        self._append(checks)
        advance = self.engine.advance(self.state, buckets, stop, windows=True)
        self.state = advance.state
        results = advance.outputs[self.first]
        if results.num_rows:
            own = results.drop_columns(["seq"]).cast(self.log.schema).combine_chunks()
            self.log.append(data_frame(Kind.STABLE, self.log.next_id, own.to_batches()[0]))
        self.log.append(boundary_frame(self.log.next_id, stop))
        tuples = sum(table.num_rows for bucket in buckets for table in bucket.tables.values())
        self._append(self.checkpoints.advanced(before, start, advance, tuples, results.num_rows))
        machine = self.checkpoints.machine
        machine.validate()
        self.records.append(
            Record(stop, machine.extent_from, machine.replay_from, self.log.next_id)
        )
        return dict(advance.outputs)

    def _append(self, batches: Sequence[WindowBatch]) -> None:
        told = self.checkpoints.told()
        for batch in batches:
            header = batch.header(self.log.next_id)
            self.log.append(Frame(header, batch.batch(told)))

    def crash(self, record: Record | None, half: bool = False) -> int:
        """Lose everything but the log and a record; returns the boundary of the new state.

        ``half``: crash again in the middle of the recovery, then recover.
        """
        self.crashes += 1
        self.log.close()
        self.state = EMPTY
        # A new engine plans the network anew, which takes most of the time: not every time.
        if self.rng.random() < 0.3:
            self.engine.close()
            self._start()
        else:
            self._start(self.engine)
        if record is None:
            return EMPTY.boundary
        extent = read_extent(self.log, record.boundary, record.extent_from)
        recovered = load(self.engine, extent, record.boundary, record.replay_from)
        assert recovered.state.boundary >= record.replay_from
        if half:
            return self.crash(record)
        replayed = split(self.tables, [recovered.state.boundary, record.boundary])
        self.state = self.checkpoints.recover(recovered, replayed)
        self.checkpoints.machine.validate()
        return record.boundary
