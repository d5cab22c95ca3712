"""A passive copy that is fed by the other's output log (``checkpoint = "continuous"``).

The states of single windows are in the log, between the results (docs/design/cec.md). So what
one copy sends the other is its log: everything since the last time, or from the oldest window
state that its record needs. The other copy appends that to a log of its own and keeps the
record beside it. When it wakes it recovers as a replica does that restarts from its own log.

Window states of both copies may lie in one log in any order: each is true, whoever wrote it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.blocks import Block
from holdfast.core.effects import Append, ApplyCheckpoint, TrimLog, TruncateLog
from holdfast.core.events import CheckpointApplied, CheckpointFailed, Event, RecoveryRecord
from holdfast.core.frame import Kind
from holdfast.core.messages import StreamFrame
from holdfast.core.records import Checkpoint, LoggedStream
from holdfast.core.replica import whole_frames
from holdfast.errors import StateError
from holdfast.flight.checkpoints import decode_record, encode_checkpoint, encode_record
from holdfast.log import LogError, LogOptions, StreamLog
from holdfast.log.payload import is_window
from holdfast.runtime.keeper import Found, OwnCheckpoint
from holdfast.runtime.shipper import Encoded, Shipper
from holdfast.runtime.state_directory import StateDirectory
from holdfast.runtime.stream_store import StreamStore
from holdfast.spark.eventual import read_extent

KEPT_IN_LOG = (Kind.STABLE, Kind.BOUNDARY, Kind.WINDOW_OPEN, Kind.WINDOW_CHECK)
# How long what is in the output queue may take to reach the log.
LOG_PATIENCE_SECONDS = 5.0


class LogKeeper:
    """The logs of one copy, and the record that says where to go on from."""

    def __init__(
        self,
        directory: Path,
        schemas: Mapping[str, pa.Schema],
        options: LogOptions,
        identity: str,
        post: Callable[[Event], None],
    ) -> None:
        """The first of the streams has the window states."""
        self._identity = identity
        self._post = post
        self._directory = StateDirectory(directory / "state")
        self._logs = StreamStore(directory / "streams", schemas, options, post, self._save)
        self.stream = next(iter(schemas))
        # A log that was replaced lacks what older records need.
        self._oldest_record = -1

    @property
    def log(self) -> StreamLog:
        """The log with the window states."""
        return self._logs.logs[self.stream]

    def piece(self, begin: int | None) -> tuple[LoggedStream, int]:
        """The log from a place on, and where it ends; from what the record needs, if None."""
        log, frames = self.log, []
        end, first_id = log.next_lsn, log.stable_next_id
        if begin is None:
            begin = self._logs.first_window(self.stream)
        with log.replay(from_lsn=end if begin is None else begin) as reader:
            for lsn, frame in reader:
                if lsn < end and frame.kind in KEPT_IN_LOG:
                    block = None if frame.batch is None else Block(frame.batch)
                    frames.append(StreamFrame(frame.header, block))
        if frames:
            first_id = frames[0].header.first_id
        return LoggedStream(self.stream, first_id, tuple(frames)), end

    # -- as the disk of a node ------------------------------------------------------------

    def start(self) -> None:
        self._logs.start()

    def close(self) -> None:
        self._logs.close()
        self._directory.close()

    def put(self, order: Append | TrimLog | TruncateLog) -> None:
        self._logs.put(order)

    @property
    def sizes(self) -> Mapping[str, int]:
        return self._logs.sizes

    def keep(self, own: OwnCheckpoint) -> None:
        """What the copy itself computed."""
        self._logs.put(own.append)

    def apply(self, order: ApplyCheckpoint) -> None:
        """What the other copy sent."""
        self._logs.call(lambda: self._apply(order))

    def woke(self, record: RecoveryRecord) -> None:
        """Jobs go on from ``record``: what it needs stays, whatever came meanwhile."""
        self._logs.call(lambda: self._need(record))

    # -- reading ------------------------------------------------------------------------

    def found(self) -> Found | None:
        """What an earlier life left on disk."""
        manifest = self._directory.manifest
        if manifest is None or manifest["record"] is None:
            return None
        if manifest.get("identity") != self._identity:
            raise StateError(
                f"{self._directory.path} belongs to another network or another version of it, or "
                f"was written with another way to checkpoint; use the one it was written with, "
                f"or a new data directory"
            )
        record = decode_record(manifest["record"])
        self._logs.check_reaches(dict(record.outputs), self._directory.path)
        self._need(record)
        logged = [self._logs.logged(stream, complete=False) for stream in self._logs.logs]
        return Found(record, tuple(whole_frames(each) for each in logged), None)

    def _need(self, record: RecoveryRecord) -> None:
        extent = read_extent(self.log, record.boundary, record.extent, whole_log=True)
        self._logs.replace_windows(self.stream, extent.places())

    # -- writing ------------------------------------------------------------------------

    def _apply(self, order: ApplyCheckpoint) -> None:
        checkpoint = order.checkpoint
        sent = checkpoint.state
        assert isinstance(sent, LoggedStream)
        try:
            # 1: a log that ends before what came begins is replaced; without a record until then
            if self.log.stable_next_id < sent.first_id:
                self._write_record(None)
                self._logs.restart(self.stream, sent.first_id)
                self._oldest_record = checkpoint.record.boundary
            # 2: the frames, the record
            others = [each for each in order.queues if each.stream != sent.stream]
            for each in others:
                if self._logs.logs[each.stream].stable_next_id < each.first_id:
                    # Everyone has acknowledged what lies between.
                    self._logs.restart(each.stream, each.first_id)
            streams = [(each.stream, each.frames) for each in (sent, *others)]
            self._logs.write(streams, checkpoint.record)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._post(CheckpointFailed(checkpoint.number, reason))
        else:
            self._post(CheckpointApplied(checkpoint.number, None))

    def _save(self, record: RecoveryRecord) -> None:
        if record.boundary >= self._oldest_record:
            self._write_record(record)

    def _write_record(self, record: RecoveryRecord | None) -> None:
        found = None if record is None else encode_record(record)
        self._directory.write_manifest({"identity": self._identity, "record": found})


class LogShipper(Shipper):
    """Sends pieces of the log instead of states."""

    def __init__(self, keeper: LogKeeper, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._keeper = keeper
        # Where the log ended, by the numbers of checkpoints.
        self._ends: dict[int, int] = {}

    def encode(self, checkpoint: Checkpoint) -> tuple[Iterable[Encoded], int]:
        self._wait_for_log(checkpoint)
        begin = None if checkpoint.base is None else self._ends.get(checkpoint.base)
        if begin is not None and begin < self._keeper.log.first_lsn:
            begin = None
        piece, end = self._keeper.piece(begin)
        self.total.whole += begin is None
        kept = dict(sorted(self._ends.items())[-2:])
        if checkpoint.base in self._ends:
            kept[checkpoint.base] = self._ends[checkpoint.base]
        self._ends = {**kept, checkpoint.number: end}
        windows = sum(each.header.count for each in piece.frames if is_window(each.header.kind))
        return encode_checkpoint(checkpoint, (), piece), windows

    def _wait_for_log(self, checkpoint: Checkpoint) -> None:
        """What is in the queue must be in the log: the other copy's log may not end before."""
        stream = self._keeper.stream
        queue = next(each for each in checkpoint.queues if each.stream == stream)
        next_id = queue.frames[-1].header.first_id
        deadline = time.monotonic() + LOG_PATIENCE_SECONDS
        while self._keeper.log.stable_next_id < next_id:
            if time.monotonic() > deadline:
                raise LogError(f"{self._keeper.log.directory} has not got tuple {next_id - 1} yet")
            time.sleep(0.005)
