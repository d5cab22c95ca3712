"""Handing tuples to an entry point from Python.

    with holdfast.Producer.of("deployment.toml", "load", name="sensor-7") as producer:
        producer.send(table)            # batched; returns at once
        producer.promise(now)           # nothing older follows (if tuples bring their own time)
        producer.flush()                # returns when everything is durable

Batches carry the producer's name and a number, and are sent again after a lost connection or a
restart of the entry point: each becomes tuples exactly once. A producer that restarts under
its old name learns how many of its tuples are durable, ``tuples``, and goes on from there. One
that still runs under that name is fenced: what it sends is refused, and it says so.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from holdfast.core.pauses import pause_after
from holdfast.errors import HoldfastError, InputError
from holdfast.flight.peers import act, connect, explain
from holdfast.flight.refused import Refused, refusal_of
from holdfast.flight.roles import Role
from holdfast.flight.security import Security
from holdfast.flight.wire import CLOSING
from holdfast.intact import small_enough
from holdfast.rows import fit_table, table_of

_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 2.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ProducerError(HoldfastError):
    """The entry point refuses the producer, or did not acknowledge in time."""


class ProducerFenced(ProducerError):
    """Another producer was opened under the same name since; this one can send no more."""


@dataclass(frozen=True)
class _Batch:
    sequence: int
    tuples: int
    data: pa.RecordBatch
    promise: int | None = None

    @property
    def about(self) -> bytes:
        """What goes with it."""
        said = {"sequence": self.sequence, "tuples": self.tuples}
        if self.promise is not None:
            said["promise"] = self.promise
        return json.dumps(said).encode()


class Producer:
    """Sends tuples to one entry point."""

    def __init__(
        self,
        stream: str,
        location: str | Callable[[], str],
        *,
        name: str,
        security: Security | None = None,
        batch_tuples: int = 10_000,
        linger_s: float = 0.02,
        pending_batches: int = 64,
        connect_timeout_s: float = 30.0,
    ) -> None:
        """
        location         of the entry point; a function is asked at every attempt to connect.
        name             who this is; two producers of one stream need two names, because one
                         that is opened fences any other of its name.
        batch_tuples     a batch is sent when it has so many tuples,
        linger_s         or when its oldest tuple has waited so long.
        pending_batches  ``send`` waits while so many batches are not acknowledged.
        """
        self.stream = stream
        self.name = name
        self._security = security or Security()
        self._where = location
        self._security.check_destination(self._location)
        self._batch_tuples = batch_tuples
        self._linger_s = linger_s
        self._most_pending = pending_batches
        self._changed = threading.Condition()
        self._collecting: list[pa.Table] = []
        self._collected = 0
        self._oldest = 0.0
        self._pending: deque[_Batch] = deque()
        self._unsent: deque[_Batch] = deque()
        self._failure: ProducerError | None = None
        self._closed = False
        self._busy = False
        place = self._place(connect_timeout_s)
        self.schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(place["schema"])))
        self._required = frozenset(place["required"])
        self._own_time = bool(place["own_time"])
        self.epoch = int(place["epoch"])
        self._sequence = self.durable_sequence = int(place["sequence"])
        self._sent_tuples = self.tuples = int(place["tuples"])
        self._thread = threading.Thread(target=self._run, name=f"producer {name}", daemon=True)
        self._thread.start()

    @classmethod
    def of(cls, deployment: str | os.PathLike[str], stream: str, *, name: str) -> Producer:
        """A producer for a deployment that was started on this machine."""
        from holdfast.plans.topology import reach

        found = reach(deployment)
        process = f"entry-{stream}"
        book = found.book()
        if process not in book:
            raise ProducerError(f"{deployment} has no source {stream!r}")
        return cls(stream, lambda: book[process], name=name, security=found.security)

    # -- sending ------------------------------------------------------------------------

    def send(self, rows: pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]]) -> None:
        """Hand over tuples; waits only while too much is not acknowledged.

        Raises InputError, and takes none of the rows, if they do not have the source's columns:
        one that the source does not know, one of another type, or one missing. A row given as a
        dictionary may leave out what can be null.
        """
        # All of the rows or, if one cannot be sent, none.
        for table in list(small_enough(self._as_table(rows), f"source {self.stream!r}")):
            self._collect(table)

    def _collect(self, table: pa.Table) -> None:
        if table.num_rows == 0:
            return
        with self._changed:
            while len(self._pending) >= self._most_pending:
                self._check()
                self._changed.wait(0.5)
            self._check()
            if not self._collecting:
                self._oldest = time.monotonic()
            self._collecting.append(table)
            self._collected += table.num_rows
            if self._collected >= self._batch_tuples:
                self._cut()
            self._changed.notify_all()

    def promise(self, stime: datetime | int) -> None:
        """Say that no tuple older than ``stime`` will be sent any more, microseconds or a time.

        For a source whose tuples bring their own time. Windows that end by then need not wait
        for the next tuple. What is sent after it and is older may be a dead letter.
        """
        if not self._own_time:
            raise InputError(
                f"source {self.stream!r} takes the time of arrival: there is nothing to promise"
            )
        if isinstance(stime, datetime):
            if stime.tzinfo is None:
                raise InputError(f"the time {stime} has no zone; add tzinfo, e.g. datetime.UTC")
            stime = (stime - _EPOCH) // timedelta(microseconds=1)
        with self._changed:
            self._check()
            self._cut()
            self._number(pa.RecordBatch.from_pylist([], schema=self.schema), stime)
            self._changed.notify_all()

    def flush(self, timeout_s: float = 60.0) -> int:
        """Wait until everything sent is durable; how many tuples of this producer are."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._cut()
            self._changed.notify_all()
            while self._pending:
                self._check()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ProducerError(
                        f"{self.stream} at {self._location} has not acknowledged "
                        f"{len(self._pending)} batches within {timeout_s:g} s"
                    )
                self._changed.wait(min(left, 0.5))
        return self.tuples

    def close(self, timeout_s: float = 60.0) -> None:
        """Flush, then let go of the connection."""
        if not self._closed and self._failure is None:
            self.flush(timeout_s)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(5.0)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            with self._changed:
                self._closed = True
                self._changed.notify_all()

    @property
    def pending(self) -> int:
        """How many batches are not acknowledged."""
        return len(self._pending)

    def _as_table(self, rows: pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]]) -> pa.Table:
        where = f"source {self.stream!r}"
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        if isinstance(rows, pa.Table):
            return fit_table(rows, self.schema, where)
        return table_of(rows, self.schema, self._required, where)

    def _cut(self) -> None:
        """Make a batch of what was collected."""
        if not self._collecting:
            return
        table = pa.concat_tables(self._collecting).combine_chunks()
        self._collecting, self._collected = [], 0
        for piece in small_enough(table, self.stream):
            for data in piece.to_batches():
                self._number(data)

    def _number(self, data: pa.RecordBatch, promise: int | None = None) -> None:
        """The next batch to be sent."""
        self._sequence += 1
        self._sent_tuples += data.num_rows
        batch = _Batch(self._sequence, self._sent_tuples, data, promise)
        self._pending.append(batch)
        self._unsent.append(batch)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise ProducerError(f"the producer {self.name!r} was closed")

    # -- the connection -----------------------------------------------------------------

    @property
    def _location(self) -> str:
        return self._where if isinstance(self._where, str) else self._where()

    def _place(self, timeout_s: float) -> dict[str, Any]:
        """How far the entry point has our tuples; tries until it answers."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                with connect(self._location, self._security) as client:
                    asked = {"producer": self.name}
                    return act(
                        client, self._security, self.name, "producer", asked, role=Role.PRODUCE
                    )
            except Exception as error:
                self._refused(error)
                if time.monotonic() >= deadline:
                    raise ProducerError(
                        f"{self.stream} at {self._location} does not answer: {explain(error)}"
                    ) from None
                time.sleep(0.1)

    def _refused(self, error: Exception) -> None:
        """Raise what trying again would not change."""
        text = explain(error)
        why = refusal_of(error)
        if why is not None:
            kind = ProducerFenced if why is Refused.FENCED else ProducerError
            raise kind(f"{self.stream} at {self._location}: {text}") from None

    def _run(self) -> None:
        failures = 0
        while not self._closed:
            failures += 1
            try:
                self._stream()
                failures = 1
            except ProducerError as error:
                self._failure = error
            except Exception as error:
                try:
                    self._refused(error)
                except ProducerError as refused:
                    self._failure = refused
            with self._changed:
                self._changed.notify_all()
                if self._failure is not None:
                    return
            time.sleep(pause_after(failures, _SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS))

    def _stream(self) -> None:
        """One connection: send what is pending, then what comes, until it breaks."""
        with connect(self._location, self._security) as client:
            said = {"stream": self.stream, "producer": self.name, "epoch": self.epoch}
            command = json.dumps(said).encode()
            headers = self._security.headers(self.name, Role.PRODUCE)
            options = flight.FlightCallOptions(headers=headers)
            writer, reader = client.do_put(
                flight.FlightDescriptor.for_command(command), self.schema, options
            )
            broken: list[Exception] = []
            thread = threading.Thread(
                target=self._acks,
                args=(reader, broken),
                name=f"producer {self.name} acknowledged",
                daemon=True,
            )
            thread.start()
            try:
                with self._changed:
                    self._unsent = deque(self._pending)
                while (batch := self._next(broken)) is not None:
                    writer.write_with_metadata(batch.data, pa.py_buffer(batch.about))
                if broken:
                    raise broken[0]
                writer.done_writing()
                thread.join(5.0)
            finally:
                writer.close()

    def _next(self, broken: list[Exception]) -> _Batch | None:
        with self._changed:
            while not (self._closed or broken):
                if self._unsent:
                    return self._unsent.popleft()
                if self._collecting:
                    left = self._oldest + self._linger_s - time.monotonic()
                    if left <= 0:
                        self._cut()
                        continue
                    self._changed.wait(left)
                else:
                    self._changed.wait(0.5)
        return None

    def _acks(self, reader: flight.FlightMetadataReader, broken: list[Exception]) -> None:
        try:
            while (data := reader.read()) is not None:
                said = json.loads(data.to_pybytes())
                if CLOSING in said:
                    break
                self._acknowledged(int(said["sequence"]))
            if not self._closed:
                broken.append(ConnectionError("the entry point ended the call"))
        except Exception as error:
            broken.append(error)
        with self._changed:
            self._changed.notify_all()

    def _acknowledged(self, sequence: int) -> None:
        with self._changed:
            while self._pending and self._pending[0].sequence <= sequence:
                done = self._pending.popleft()
                self.durable_sequence, self.tuples = done.sequence, done.tuples
            self._changed.notify_all()
