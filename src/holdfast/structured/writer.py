"""The rows of a Structured Streaming query as tuples of a source, each exactly once.

Tasks hand their rows to the driver with their commit messages, as Arrow. The driver makes one
table of a batch, writes it into the *journal*, sends it through a producer and, when all of it is
durable at the entry point, notes the batch as done. Spark may bring a batch again after that, and
after a crash in the middle of it:

- a batch that is done is not sent again;
- one that was begun goes on with the table in the journal, whatever the second computation gave,
  after as many tuples as the entry point's ledger has of it.

So the journal belongs to the query as its checkpoint does: a directory on the driver's disk, which
lives as long as the query.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from holdfast.deployment import load_deployment
from holdfast.durable import make_private, read_document, write_document, write_whole
from holdfast.errors import InputError, StateError
from holdfast.frames import SYSTEM_COLUMNS
from holdfast.plans.plan import read_plan
from holdfast.producer import Producer

_FLUSH_SECONDS = 300.0


@dataclass
class TaskRows(WriterCommitMessage):
    """The rows of one task: an Arrow stream, compressed; nothing if there were none."""

    data: bytes


def writer_of(
    deployment: str, source: str, producer: str, journal: str, columns: Sequence[str]
) -> SourceWriter:
    """A writer; InputError if the query's columns are not the source's."""
    plan = read_plan(load_deployment(deployment))
    if source not in plan.sources:
        raise InputError(f"{deployment} has no source {source!r}; it has {sorted(plan.sources)}")
    schema = plan.sources[source].schema
    wanted = [name for name in schema.names if name not in SYSTEM_COLUMNS]
    if sorted(columns) != sorted(wanted):
        raise InputError(
            f"source {source!r} has the columns {wanted}; the query has {list(columns)}. "
            f"Select and rename them before writeStream"
        )
    where, kept = (str(Path(each).resolve()) for each in (deployment, journal))
    return SourceWriter(where, source, producer, kept)


class SourceWriter(DataSourceStreamArrowWriter):
    """Writes one query into one source."""

    def __init__(self, deployment: str, source: str, producer: str, journal: str) -> None:
        self._deployment = deployment
        self._source = source
        self._producer = producer
        self._journal = journal

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskRows:
        batches = [batch for batch in iterator if batch.num_rows]
        if not batches:
            return TaskRows(b"")
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, batches[0].schema, options=options) as stream:
            for batch in batches:
                stream.write_batch(batch)
        return TaskRows(sink.getvalue())

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,
    ) -> None:
        parts = [part.data for part in messages if isinstance(part, TaskRows) and part.data]
        journal = DoneBatches(Path(self._journal), self._source, self._producer)
        if journal.is_done(batchId):
            return
        table = journal.begin(batchId, parts)
        with Producer.of(self._deployment, self._source, name=self._producer) as producer:
            left = journal.left(table, producer.tuples)
            producer.send(left)
            journal.done(batchId, producer.flush(_FLUSH_SECONDS))

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,
    ) -> None:
        """Nothing was sent: that begins with the commit."""


class DoneBatches:
    """Which batches of a query are done, and the rows of the one that was begun."""

    def __init__(self, directory: Path, source: str, producer: str) -> None:
        make_private(directory)
        self._directory = directory
        self._whose = {"source": source, "producer": producer}
        self._path = directory / "done.json"
        self._state: dict[str, Any] = {"batch": -1, "tuples": None}
        if self._path.exists():
            self._state = read_document(self._path)
            whose = {name: self._state[name] for name in self._whose}
            if whose != self._whose:
                raise StateError(
                    f"{directory} is the journal of a query that writes to {whose}; this one "
                    f"writes to {self._whose}: give it a directory of its own"
                )

    def is_done(self, batch: int) -> bool:
        """Whether a batch came before and is durable."""
        last = int(self._state["batch"])
        if batch < last:
            raise StateError(
                f"batch {batch} came, but batch {last} is done: the query began anew, without its "
                f"checkpoint. Give it another journal than {self._directory}, and another producer"
            )
        return batch == last

    def begin(self, batch: int, parts: Sequence[bytes]) -> pa.Table | None:
        """The rows of a batch: those of its first attempt, if there was one."""
        path = self._file(batch)
        if not path.exists():
            tables = [pa.ipc.open_stream(part).read_all() for part in parts]
            if not tables:
                return None
            sink = io.BytesIO()
            whole = pa.concat_tables(tables)
            with pa.ipc.new_file(sink, whole.schema) as file:
                file.write_table(whole)
            write_whole(path, sink.getvalue())
        with pa.OSFile(os.fspath(path)) as kept:
            return pa.ipc.open_file(kept).read_all()

    def left(self, table: pa.Table | None, durable: int) -> pa.Table:
        """What of the batch the entry point does not have; it has ``durable`` of this producer."""
        if self._state["tuples"] is None:
            # Where the first batch begins must be known before any of it is sent.
            self._write(-1, durable)
        sent = durable - int(self._state["tuples"])
        rows = 0 if table is None else table.num_rows
        if not 0 <= sent <= rows:
            raise StateError(
                f"the entry point has {durable} tuples of producer {self._whose['producer']!r}; by "
                f"{self._directory} it has {self._state['tuples']} and up to {rows} more. Another "
                f"program sends under that name, or the deployment's data is new"
            )
        return pa.table({}) if table is None else table.slice(sent)

    def done(self, batch: int, durable: int) -> None:
        """All of a batch is durable."""
        self._write(batch, durable)
        self._file(batch).unlink(missing_ok=True)

    def _write(self, batch: int, tuples: int) -> None:
        self._state = {"batch": batch, "tuples": tuples, **self._whose}
        write_document(self._path, self._state)

    def _file(self, batch: int) -> Path:
        return self._directory / f"batch-{batch}.arrow"
