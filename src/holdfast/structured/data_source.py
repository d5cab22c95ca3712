"""``holdfast`` as a format of Spark's streams, by its Python data source API.

    spark.dataSource.register(holdfast.DataSource)

    spark.readStream.format("holdfast").options(
        deployment="deployment.toml", output="busy", client="spark"
    ).load()

    df.writeStream.format("holdfast").options(
        deployment="deployment.toml", source="load", producer="spark", journal="state/journal"
    ).option("checkpointLocation", "state/checkpoint").start()

What a reader and a writer promise stands in ``reader`` and ``writer``.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql import datasource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from holdfast.errors import InputError
from holdfast.structured.reader import OutputReader, reader_of
from holdfast.structured.writer import SourceWriter, writer_of

READS = ("deployment", "output", "client")
WRITES = ("deployment", "source", "producer", "journal")


class DataSource(datasource.DataSource):
    """Outputs and sources of a deployment that runs."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # Spark gives options whose names may be written in any case.
        self.options = options

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> StructType:
        found = from_arrow_schema(self._reader().schema)
        assert isinstance(found, StructType)
        return found

    def simpleStreamReader(self, schema: StructType) -> OutputReader:
        return self._reader()

    def streamWriter(self, schema: StructType, overwrite: bool) -> SourceWriter:
        given = self._given(WRITES, "writes")
        return writer_of(**given, columns=schema.fieldNames())

    def _reader(self) -> OutputReader:
        given = self._given(READS, "reads")
        tentative = self.options.get("tentative", "false").lower()
        if tentative not in ("true", "false"):
            raise InputError(f"tentative is true or false; got {tentative!r}")
        most = self.options.get("maxTuplesPerTrigger", "1000000")
        if not most.isdigit() or int(most) == 0:
            raise InputError(f"maxTuplesPerTrigger is a number from 1 on; got {most!r}")
        return reader_of(**given, tentative=tentative == "true", most_tuples=int(most))

    def _given(self, names: tuple[str, ...], does: str) -> dict[str, str]:
        given = {name: self.options.get(name, "") for name in names}
        lacks = [name for name, value in given.items() if not value]
        if lacks:
            raise InputError(
                f'a query that {does} format("holdfast") needs the options {", ".join(names)}; '
                f"{lacks[0]!r} is missing"
            )
        return given
