"""Results as Parquet objects of a store that Arrow knows: S3, Google Cloud Storage, Azure.

A store renames nothing, and an answer that did not come says nothing: what was sent may be there
later, also after whoever sent it is gone. So nothing is listed, removed, or written twice with
different rows:

1.  Which tuples are written next is noted, durably, in the writer's own file.
2.  They are written under a name made of their ids, as one object, which is there whole or not.
3.  The position says that they are.

Whoever finds a note that the position does not reach writes what it says first: the same ids, and
so the same rows under the same name. Whether an earlier life had done so, or what it sent arrives
only afterwards, makes no difference. Until these tuples have come again nothing is written.

Tentative rows, and what takes them back, are objects of their own, with names that sort before
those of the stable rows that follow.
"""

from __future__ import annotations

import time
import urllib.parse
import uuid
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs
import pyarrow.parquet as pq

from holdfast.connect.committing_sink import CommittingSink
from holdfast.connect.committing_writer import CommittingWriter, StableRows, Step, stable_rows
from holdfast.connect.sink import Position, Writer
from holdfast.connect.step_rows import StepRows
from holdfast.durable import make_private, read_document, write_document
from holdfast.errors import InputError, StateError

_SHOWN_OF_WRITER = 8
_TRIES, _TRIES_SECONDS = "retry_limit_seconds", 10
# Where Arrow makes an object empty first, also one that is there, and whole when it is closed. A
# copy within the store is whole or not there; readers pass over names that begin with _.
_SHOW_WHAT_IS_BEGUN = ("abfs", "abfss")


@dataclass(frozen=True)
class ParquetStoreSink(CommittingSink):
    """Below an address such as ``s3://bucket/busy``."""

    address: str = field(repr=False)

    @property
    def shown(self) -> str:
        """The address without how the store is reached, which may have a secret in it."""
        parts = urllib.parse.urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def identity(self) -> str:
        return f"ParquetStoreSink {self.shown}"

    def open(self, output: str, schema: pa.Schema, position: Position | None) -> Writer:
        return ParquetStoreWriter(self, output, schema, position)

    def __str__(self) -> str:
        return f"Parquet objects at {self.shown}"


@dataclass(frozen=True)
class PlannedObject:
    """Tuples that are written as one object: from an id up to another."""

    first: int
    end: int


class ParquetStoreWriter(CommittingWriter):
    """Adds objects."""

    def __init__(
        self, sink: ParquetStoreSink, output: str, schema: pa.Schema, position: Position | None
    ) -> None:
        super().__init__(str(sink), position, sink.tentative)
        self._system, self._path = file_system_of(sink.address)
        self._shows_what_is_begun = sink.address.partition(":")[0] in _SHOW_WHAT_IS_BEGUN
        self._rows = StepRows(output, schema, sink.tentative)
        self._writer = sink.writer[:_SHOWN_OF_WRITER] or "run"
        self._notes = sink.notes
        self._next_id = self._written
        plan = self._noted()
        # What was begun and, as far as is known, not done.
        self._begun = plan if plan is not None and plan.end > self._written else None
        # What was done last; looked for once, before more is added.
        self._last = plan if self._begun is None else None
        self._came = self._written

    @property
    def ready(self) -> bool:
        return self._begun is None or self._came >= self._begun.end

    def write(self, table: pa.Table) -> None:
        super().write(table)
        if table.num_rows:
            self._came = int(table["seq"][-1].as_py()) + 1

    def committed(self) -> int:
        if self._last is not None:
            if not self._is_there(self._name(self._last)):
                raise StateError(
                    f"{self._sink} lacks {self._name(self._last)}, which was written before; put "
                    f"it back, or start over with a new state or data directory"
                )
            self._last = None
        return self._next_id

    def commit(self, steps: list[Step], next_id: int) -> None:
        others: list[Step] = [each for each in steps if not isinstance(each, StableRows)]
        stable = stable_rows(steps)
        if self._begun is not None:
            if stable is None or next_id < self._begun.end:
                raise StateError(
                    f"{self._sink}: tuples {self._begun.first} to {self._begun.end - 1} were begun "
                    f"before, and only those before {next_id} came again: the input is another one"
                )
            self._put_rows(self._begun, stable)
            self._next_id, self._begun = self._begun.end, None
        if others:
            self._put(self._unique_name(), self._rows.table(others))
        if stable is not None and next_id > self._next_id:
            plan = PlannedObject(self._next_id, next_id)
            self._note(plan)
            self._put_rows(plan, stable)
            self._next_id = next_id

    def _put_rows(self, plan: PlannedObject, stable: pa.Table) -> None:
        ids = stable["seq"]
        mine = pc.and_(pc.greater_equal(ids, plan.first), pc.less(ids, plan.end))
        rows = self._rows.table([StableRows(stable.filter(mine))])
        self._put(self._name(plan), rows.combine_chunks())

    def _name(self, plan: PlannedObject) -> str:
        return f"part-{self._writer}-{plan.first:015}-{plan.end:015}.parquet"

    def _unique_name(self) -> str:
        """Of rows that have no ids: behind the stable ones so far, in the order of time."""
        plan = PlannedObject(self._next_id, self._next_id)
        return self._name(plan).replace(".parquet", f"-{time.time_ns():020}.parquet")

    # -- the note and the store ---------------------------------------------------------------

    def _noted(self) -> PlannedObject | None:
        if self._notes is None or not self._notes.exists():
            return None
        found = read_document(self._notes)
        return PlannedObject(int(found["first"]), int(found["end"]))

    def _note(self, plan: PlannedObject) -> None:
        if self._notes is not None:
            make_private(self._notes.parent)
            write_document(self._notes, {"first": plan.first, "end": plan.end})

    def _is_there(self, name: str) -> bool:
        (found,) = self._system.get_file_info([f"{self._path}/{name}"])
        return bool(found.type == fs.FileType.File)

    def _put(self, name: str, table: pa.Table) -> None:
        # Whole before the first byte goes out: what breaks off in between shows nothing.
        written = pa.BufferOutputStream()
        pq.write_table(table, written)
        self._put_bytes(name, written.getvalue())

    def _put_bytes(self, name: str, data: bytes | pa.Buffer) -> None:
        whole = f"{self._path}/{name}"
        if not self._shows_what_is_begun:
            self._send(whole, data)
            return
        # Never the same name again: what an earlier life sent may arrive still, and empty it.
        begun = f"{self._path}/_begun/{uuid.uuid4().hex}-{name}"
        self._send(begun, data)
        self._system.copy_file(begun, whole)
        self._system.delete_file(begun)

    def _send(self, path: str, data: bytes | pa.Buffer) -> None:
        with self._system.open_output_stream(path) as stream:
            stream.write(data)


def file_system_of(address: str) -> tuple[Any, str]:
    """Arrow's file system for an address, and the path in it."""
    if address.startswith("file:"):
        raise InputError(f"for a directory of this machine write its path alone, not {address!r}")
    try:
        found, path = fs.FileSystem.from_uri(_impatient(address))
    except (pa.ArrowInvalid, ValueError) as error:
        raise InputError(
            f"{address!r} is no address of an object store that Arrow knows: {error}"
        ) from None
    return found, path.rstrip("/")


def _impatient(address: str) -> str:
    """Google's store is tried again for a quarter of an hour otherwise, in which nobody knows."""
    parts = urllib.parse.urlsplit(address)
    if parts.scheme not in ("gs", "gcs") or _TRIES in urllib.parse.parse_qs(parts.query):
        return address
    query = "&".join(filter(None, [parts.query, f"{_TRIES}={_TRIES_SECONDS}"]))
    return parts._replace(query=query).geturl()
