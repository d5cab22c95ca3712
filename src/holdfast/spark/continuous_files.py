"""What the steps tell of window states, as files beside the runs they write.

For each operator, family and partition at most one file: its name has how many windows opened
and how many ended, and the number of the step; its rows are the states to be kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast import disk
from holdfast.spark.attempts import part_of
from holdfast.spark.runs import read_run, write_run
from holdfast.spark.step_directories import StepDirectory, told_in

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


def write_told(directory: str, place: tuple[str, str, int], step: int, told: Told) -> None:
    """Leave the news of an operator's family in a partition; the name appears with the whole file.

    step  as in the names of runs: what a lost executor writes late is for no other step.
    """
    inside = Path(directory, DIRECTORY)
    inside.mkdir(exist_ok=True)
    name = "~".join(str(each) for each in (*place, told.opened, told.ended, step))
    path = inside / name
    if told.rows is None:
        path.touch()
        return
    numbered = pa.array(np.full(told.rows.num_rows, place[-1], dtype=np.int32))
    part = part_of(path)
    write_run(part, told.rows.add_column(0, PARTITION, numbered))
    disk.rename(part, path)


def collect_news(directory: StepDirectory) -> tuple[FamilyNews, ...]:
    """Read what the tasks of a step left in its directory, and remove it."""
    found: dict[tuple[str, str], list[tuple[int, int, pa.Table | None]]] = {}
    for path in told_in(directory, DIRECTORY):
        operator, family, _, opened, ended, _ = path.name.split("~")
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
