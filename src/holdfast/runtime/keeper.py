"""Keeps the checkpoints of one copy of a fragment: its own and those the other copy sends.

One thread takes orders in order. A checkpoint that comes is laid on the state it builds on, so
that a job could start from it at once, if there is an engine; else it is kept as it came. Where
checkpoints are persisted they are then written as a replica's are (``state_directory``), with
the output queues beside the state; only then are they reported as held.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.core.effects import Append, ApplyCheckpoint, TrimLog, TruncateLog
from holdfast.core.events import (
    Appended,
    AppendFailed,
    CheckpointApplied,
    CheckpointFailed,
    Event,
    LoggedStream,
    RecoveryRecord,
)
from holdfast.errors import StateError
from holdfast.flight.checkpoints import (
    decode_queue,
    decode_record,
    encode_queue,
    encode_record,
    queue_batches,
)
from holdfast.runtime.state_directory import StateDirectory
from holdfast.spark.chains import Chain, Handle, Workshop
from holdfast.spark.state import State

# A copy without an engine cannot make one state of many changes; the sender sends a whole one.
LONGEST_CHAIN = 64


@dataclass(frozen=True)
class OwnCheckpoint:
    """What a running copy keeps of itself: the append with everything its record needs."""

    append: Append
    state: Handle
    queues: tuple[LoggedStream, ...]


@dataclass(frozen=True)
class Found:
    """What an earlier life left on disk."""

    record: RecoveryRecord
    queues: tuple[LoggedStream, ...]
    state: Handle


@dataclass(frozen=True)
class Woke:
    """Jobs go on from this state."""

    state: Handle


Order = OwnCheckpoint | ApplyCheckpoint | Woke


class Keeper:
    """The checkpoints of one copy."""

    def __init__(
        self,
        workshop: Workshop,
        directory: StateDirectory | None,
        identity: str,
        post: Callable[[Event], None],
    ) -> None:
        """Without ``directory`` checkpoints are in memory only."""
        self._workshop = workshop
        self._directory = directory
        self._identity = identity
        self._post = post
        self._bases: dict[int, Handle] = {}
        # What is on disk: the checkpoint of the other copy it is, and the state, if known.
        self._on_disk: int | None = None
        self._disk_state: Handle = None
        self._queue: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="holdfast-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, order: Append | TrimLog | TruncateLog) -> None:
        """There are no logs here; see ``keep`` and ``apply``."""

    def keep(self, own: OwnCheckpoint) -> None:
        if self._directory is None or own.append.record is None:
            self._post(Appended(own.append.append))
        else:
            self._queue.put(own)

    def apply(self, order: ApplyCheckpoint) -> None:
        self._queue.put(order)

    def woke(self, state: Handle) -> None:
        """Jobs go on from ``state``: changes can be told from it, if the disk has it."""
        self._queue.put(Woke(state))

    def close(self) -> None:
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(10.0)

    @property
    def sizes(self) -> Mapping[str, int]:
        return {}

    # -- reading ------------------------------------------------------------------------

    def found(self) -> Found | None:
        """The last checkpoint on disk."""
        directory = self._directory
        if directory is None or directory.manifest is None:
            return None
        manifest = directory.manifest
        if manifest.get("identity") != self._identity:
            raise StateError(
                f"{directory.path} belongs to another network or another version of it; use the "
                f"one it was written with, or a new data directory"
            )
        queues = []
        for each in manifest["queues"]:
            table = directory.read_waiting(each["stream"])
            queues.append(decode_queue(each, [] if table is None else table.to_batches()))
        chain = tuple(directory.read_state())
        self._disk_state = chain or None
        return Found(decode_record(manifest["record"]), tuple(queues), self._disk_state)

    # -- writing ------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            order = self._queue.get()
            if order is None:
                return
            match order:
                case OwnCheckpoint():
                    self._keep(order)
                case ApplyCheckpoint():
                    self._apply(order)
                case Woke(state):
                    if state is not self._disk_state:
                        self._disk_state = None

    def _keep(self, own: OwnCheckpoint) -> None:
        record = own.append.record
        assert record is not None
        try:
            self._write_own(record, own)
        except Exception as error:
            self._post(AppendFailed(own.append.append, f"{type(error).__name__}: {error}"))
        else:
            self._post(Appended(own.append.append))

    def _write_own(self, record: RecoveryRecord, own: OwnCheckpoint) -> None:
        directory = self._directory
        assert directory is not None
        whole = self._disk_state is None or directory.wants_whole()
        chain = self._workshop.pack(own.state, self._disk_state, whole)
        self._on_disk, self._disk_state = None, None
        self._write(directory, chain, record, own.queues)
        self._disk_state = self._workshop.state(own.state)

    def _apply(self, order: ApplyCheckpoint) -> None:
        checkpoint = order.checkpoint
        number = checkpoint.number
        chain = checkpoint.state
        assert isinstance(chain, tuple)
        try:
            base = None if checkpoint.base is None else self._bases[checkpoint.base]
            held = self._workshop.lay(chain, base)
            if self._directory is not None:
                self._write_taken(order, chain, held)
        except Exception as error:
            self._post(CheckpointFailed(number, f"{type(error).__name__}: {error}"))
            return
        kept = {} if checkpoint.base is None else {checkpoint.base: base}
        self._bases = {**kept, number: held}
        self._post(CheckpointApplied(number, held))

    def _write_taken(self, order: ApplyCheckpoint, chain: Chain, held: Handle) -> None:
        directory, checkpoint = self._directory, order.checkpoint
        assert directory is not None
        continues = chain[0].since is not None and checkpoint.base == self._on_disk
        if isinstance(held, State):
            if not continues or directory.wants_whole():
                chain = self._workshop.pack(held, None, True)
        elif not continues:
            assert held is not None
            chain = held
        self._on_disk, self._disk_state = None, None
        self._write(directory, chain, checkpoint.record, order.queues)
        self._on_disk, self._disk_state = checkpoint.number, held

    def _write(
        self,
        directory: StateDirectory,
        chain: Chain,
        record: RecoveryRecord,
        queues: tuple[LoggedStream, ...],
    ) -> None:
        waiting: dict[str, pa.Table] = {}
        for each in queues:
            batches = queue_batches(each)
            if batches:
                waiting[each.stream] = pa.Table.from_batches(batches)
        # 1, 2: the state and the output queues
        for index, packed in enumerate(chain):
            directory.write_state(packed, waiting if index == len(chain) - 1 else {})
        # 4, 5: the record makes it count
        manifest: dict[str, Any] = {
            "identity": self._identity,
            "record": encode_record(record),
            "queues": [encode_queue(each) for each in queues],
        }
        directory.write_manifest(manifest)
