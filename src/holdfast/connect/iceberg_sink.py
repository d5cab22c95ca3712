"""Results as an Iceberg table: exactly once, in few and whole commits.

    write_iceberg("shop.busy", catalog="sqlite:////srv/catalog.db", warehouse="/srv/warehouse")

The id after the last tuple is a property of the table, set in the transaction that appends the
tuples. It is read before every commit, and the commit is made on the snapshot that was read: if
somebody else has written meanwhile it fails, and everything is read again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.connect.committing_sink import CommittingSink
from holdfast.connect.committing_writer import CommittingWriter, Step
from holdfast.connect.extras import library
from holdfast.connect.iceberg_compaction import compact
from holdfast.connect.sink import Position, Writer
from holdfast.connect.step_rows import StepRows
from holdfast.errors import InputError
from holdfast.gained import table_gains
from holdfast.times import Duration

_TRIES = "commit.retry.num-retries"
# Of a table that is made: manifests of small commits are put together.
_PROPERTIES = {
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "10",
}


@dataclass(frozen=True)
class IcebergSink(CommittingSink):
    """A table of an Iceberg catalog."""

    table: str
    catalog: str = field(repr=False)
    warehouse: str | None
    compact_after: int = 0

    @property
    def identity(self) -> str:
        return f"IcebergSink {self.table}"

    def open(self, output: str, schema: pa.Schema, position: Position | None) -> Writer:
        return IcebergWriter(self, output, schema, position)

    def __str__(self) -> str:
        return f"Iceberg table {self.table}"


def write_iceberg(
    table: str,
    *,
    catalog: str,
    warehouse: str | None = None,
    commit_interval: Duration = "10 seconds",
    compact_after: int = 0,
    tentative: bool = False,
) -> IcebergSink:
    """Append tuples to an Iceberg table, each exactly once.

    table            its namespace and name, "shop.busy"; both are made if they are not there.
    catalog          the address of a SQL catalog, "sqlite:////srv/catalog.db", in which its name
                     is "default"; or the name of one that pyiceberg's own configuration has.
    warehouse        where a SQL catalog puts tables that it makes.
    commit_interval  how often a client commits what it has gathered; ``holdfast run`` commits at
                     its checkpoints.
    compact_after    after so many commits, the small files of the table are made into large ones;
                     by default never, because the library can only call that an overwrite, and
                     readers that follow a table's snapshots stop at these unless told to skip them.
    tentative        also append tentative rows and what takes them back, with a column ``change``.
    """
    if table.count(".") < 1:
        raise InputError(
            f"an Iceberg table is given with its namespace, 'shop.busy'; got {table!r}"
        )
    return IcebergSink(
        table,
        catalog,
        warehouse,
        compact_after,
        commit_interval=commit_interval,
        tentative=tentative,
    )


class IcebergWriter(CommittingWriter):
    """Appends to one table."""

    def __init__(
        self, sink: IcebergSink, output: str, schema: pa.Schema, position: Position | None
    ) -> None:
        super().__init__(str(sink), position, sink.tentative)
        self._errors = library("pyiceberg.exceptions", "iceberg")
        self._rows = StepRows(output, schema, sink.tentative)
        self._name = sink.table
        self._settings = sink
        self._property = f"holdfast.{output}.{sink.writer}.next-id"
        self._catalog: Any = None
        self._table: Any = None
        self._commits = 0

    def committed(self) -> int:
        try:
            if self._catalog is None:
                self._catalog = self._load()
            try:
                self._table = self._catalog.load_table(self._name)
            except self._errors.NoSuchTableError:
                self._table = self._make()
            self._gain()
        except InputError:
            raise
        except Exception as error:  # the catalog's database, its files, or the way there
            raise self._passing(error) from None
        self._try_once(self._table)
        return int(self._table.properties.get(self._property, 0))

    def commit(self, steps: list[Step], next_id: int) -> None:
        rows = self._rows.table(steps)
        try:
            with self._table.transaction() as transaction:
                transaction.set_properties({self._property: str(next_id)})
                transaction.append(rows)
        except (ValueError, TypeError) as error:
            raise InputError(f"{self._sink} has other columns than the output: {error}") from None
        except Exception as error:
            raise self._passing(error) from None
        self._commits += 1
        if self._settings.compact_after and self._commits % self._settings.compact_after == 0:
            try:
                compact(self._try_once(self._catalog.load_table(self._name)))
            except Exception:  # somebody else wrote just then, or the way is cut: another time
                self._commits -= 1

    def _try_once(self, table: Any) -> Any:
        """The library's own tries are off: they would append what is there already."""
        table.metadata.properties[_TRIES] = "0"
        return table

    def _load(self) -> Any:
        settings = self._settings
        if "://" not in settings.catalog:
            return library("pyiceberg.catalog", "iceberg").load_catalog(settings.catalog)
        if settings.warehouse is None:
            raise InputError(f"{self._sink}: a SQL catalog needs warehouse=, where tables are put")
        module = library("pyiceberg.catalog.sql", "iceberg")
        return module.SqlCatalog("default", uri=settings.catalog, warehouse=settings.warehouse)

    def _make(self) -> Any:
        namespace = self._name.rpartition(".")[0]
        self._catalog.create_namespace_if_not_exists(namespace)
        return self._catalog.create_table_if_not_exists(
            self._name, schema=self._rows.schema, properties=_PROPERTIES
        )

    def _gain(self) -> None:
        """The table gets the columns that the output has gained."""
        if table_gains(self._table.schema().column_names, self._rows.schema):
            with self._table.update_schema() as update:
                update.union_by_name(self._rows.schema)

    def _passing(self, error: Exception) -> OSError:
        """Somebody else has written, or the catalog is away: everything is read again."""
        self._catalog = None
        return ConnectionError(f"{self._sink}: {error}")
