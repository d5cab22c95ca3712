"""Results as a Delta table: exactly once, in few and whole commits.

    write_delta("tables/busy", commit_interval="10 seconds")

The id after the last tuple is committed with the tuples, as the version of an application's
transaction, which Delta keeps for this purpose. It is read before every commit, and the commit is
made on the version that was read: if somebody else has written meanwhile it fails, and everything
is read again. The library's own tries are off, because they would append what is there already.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.connect.committing_sink import CommittingSink
from holdfast.connect.committing_writer import CommittingWriter, Step
from holdfast.connect.extras import library
from holdfast.connect.sink import Position, Writer
from holdfast.connect.step_rows import StepRows
from holdfast.errors import InputError
from holdfast.gained import table_gains
from holdfast.times import Duration


@dataclass(frozen=True)
class DeltaSink(CommittingSink):
    """A Delta table, by its path or address."""

    path: str
    compact_after: int
    storage_options: dict[str, str] | None = field(default=None, repr=False)

    def open(self, output: str, schema: pa.Schema, position: Position | None) -> Writer:
        return DeltaWriter(self, output, schema, position)

    def __str__(self) -> str:
        return f"Delta table {self.path}"


def write_delta(
    path: str | Path,
    *,
    commit_interval: Duration = "10 seconds",
    compact_after: int = 50,
    tentative: bool = False,
    storage_options: dict[str, str] | None = None,
) -> DeltaSink:
    """Append tuples to a Delta table, each exactly once.

    commit_interval  how often a client commits what it has gathered; ``holdfast run`` commits at
                     its checkpoints.
    compact_after    after so many commits, the small files of the table are made into large ones;
                     0 for never.
    tentative        also append tentative rows and what takes them back, with a column ``change``.
    storage_options  how an object store is reached.
    """
    return DeltaSink(
        str(path),
        compact_after,
        storage_options,
        commit_interval=commit_interval,
        tentative=tentative,
    )


class DeltaWriter(CommittingWriter):
    """Appends to one table."""

    def __init__(
        self, sink: DeltaSink, output: str, schema: pa.Schema, position: Position | None
    ) -> None:
        super().__init__(str(sink), position, sink.tentative)
        self._library = library("deltalake", "delta")
        self._rows = StepRows(output, schema, sink.tentative)
        self._path = sink.path
        self._options = sink.storage_options
        self._application = f"holdfast {output} {sink.writer}"
        self._compact_after = sink.compact_after
        self._commits = 0
        self._table: Any = None

    def committed(self) -> int:
        delta = self._library
        try:
            self._table = delta.DeltaTable(self._path, storage_options=self._options)
        except delta.exceptions.TableNotFoundError:
            self._table = None
            return 0
        except delta.exceptions.DeltaError as error:
            raise ConnectionError(f"{self._sink}: {error}") from None
        return self._table.transaction_version(self._application) or 0

    def commit(self, steps: list[Step], next_id: int) -> None:
        delta = self._library
        properties = delta.CommitProperties(
            app_transactions=[delta.Transaction(self._application, next_id)],
            max_commit_retries=0,
        )
        try:
            delta.write_deltalake(
                self._path if self._table is None else self._table,
                self._rows.table(steps),
                mode="error" if self._table is None else "append",
                schema_mode="merge" if self._gains() else None,
                commit_properties=properties,
                storage_options=self._options if self._table is None else None,
            )
        except delta.exceptions.SchemaMismatchError as error:
            raise InputError(f"{self._sink} has other columns than the output: {error}") from None
        except (delta.exceptions.DeltaError, FileExistsError) as error:
            raise ConnectionError(f"{self._sink}: {error}") from None
        self._commits += 1
        if self._compact_after and self._commits % self._compact_after == 0:
            self._compact()

    def _gains(self) -> bool:
        """Whether the table gets columns that the output has gained."""
        if self._table is None:
            return False
        there = [field.name for field in self._table.schema().fields]
        return bool(table_gains(there, self._rows.schema))

    def _compact(self) -> None:
        """Only puts files together: if somebody else writes just then, it is done another time."""
        delta = self._library
        try:
            table = delta.DeltaTable(self._path, storage_options=self._options)
            table.optimize.compact(commit_properties=delta.CommitProperties(max_commit_retries=0))
            table.create_checkpoint()
        except delta.exceptions.DeltaError:
            self._commits -= 1
