"""Makes the small data files of an Iceberg table into a large one, in one commit.

The library has no call for it, but the parts: the files of a snapshot, reading some of them, and a
commit that takes files away and adds others, which fails if one of them is gone meanwhile.
"""

from __future__ import annotations

from typing import Any

from holdfast.connect.extras import library

SMALL_BYTES = 16 << 20
# Rows go through memory: so much at a time, as it is in files.
MOST_BYTES = 64 << 20


def compact(table: Any) -> None:
    """Put small files together; nothing if there are fewer than two."""
    arrow = library("pyiceberg.io.pyarrow", "iceberg")
    everything = library("pyiceberg.expressions", "iceberg").AlwaysTrue()
    tasks: list[Any] = []
    size = 0
    for task in table.scan().plan_files():
        small = task.file.file_size_in_bytes < SMALL_BYTES and not task.delete_files
        if small and size + task.file.file_size_in_bytes <= MOST_BYTES:
            tasks.append(task)
            size += task.file.file_size_in_bytes
    if len(tasks) < 2:
        return
    reading = arrow.ArrowScan(table.metadata, table.io, table.schema(), everything)
    rows = reading.to_table(tasks)
    with table.transaction() as transaction:
        metadata = transaction.table_metadata
        made = list(arrow._dataframe_to_data_files(table_metadata=metadata, df=rows, io=table.io))
        with transaction.update_snapshot().overwrite() as snapshot:
            for task in tasks:
                snapshot.delete_data_file(task.file)
            for file in made:
                snapshot.append_data_file(file)
