"""What the steps tell of window states, as files beside the runs they write.

For each operator, family and partition at most one file: its name has how many windows opened
and how many ended, its rows are the states to be kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast import disk
from holdfast.spark.runs import read_run, write_run

DIRECTORY = "windows"
PARTITION = "partition"


@dataclass
class Told:
    """One partition's news of a family: counts, and the states to be kept."""

    rows: pa.Table | None = None
    opened: int = 0
    ended: int = 0


@dataclass(frozen=True)
class FamilyNews:
    """What a step tells of one operator's family: the states of all partitions, and counts.

    ``rows`` have the column ``partition`` in front of those of the state.
    """

    operator: str
    family: str
    rows: pa.Table | None
    opened: int
    ended: int


def write_told(directory: str, operator: str, family: str, partition: int, told: Told) -> None:
    """Leave a partition's news; the name appears only when the file is complete."""
    place = Path(directory, DIRECTORY)
    place.mkdir(exist_ok=True)
    path = place / f"{operator}~{family}~{partition}~{told.opened}~{told.ended}"
    if told.rows is None:
        path.touch()
        return
    numbered = pa.array(np.full(told.rows.num_rows, partition, dtype=np.int32))
    write_run(f"{path}.part", told.rows.add_column(0, PARTITION, numbered))
    disk.rename(f"{path}.part", path)


def collect_news(directory: Path) -> tuple[FamilyNews, ...]:
    """Read and remove what the tasks of a step left in its directory."""
    place = directory / DIRECTORY
    if not place.is_dir():
        return ()
    found: dict[tuple[str, str], list[tuple[int, int, pa.Table | None]]] = {}
    for path in sorted(place.iterdir()):
        operator, family, _, opened, ended = path.name.split("~")
        rows = read_run(str(path)) if path.stat().st_size else None
        found.setdefault((operator, family), []).append((int(opened), int(ended), rows))
        path.unlink()  # what is mapped stays readable
    return tuple(_news(found))


def _news(
    found: Mapping[tuple[str, str], list[tuple[int, int, pa.Table | None]]],
) -> Iterator[FamilyNews]:
    for (operator, family), parts in found.items():
        tables = [rows for *_, rows in parts if rows is not None]
        rows = pa.concat_tables(tables, promote_options="default") if tables else None
        opened, ended = sum(part[0] for part in parts), sum(part[1] for part in parts)
        yield FamilyNews(operator, family, rows, opened, ended)
