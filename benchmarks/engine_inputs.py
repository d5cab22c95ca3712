"""The inputs of benchmark engine: Parquet files, one for each bucket."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BUCKET_US = 1_000_000
WINDOW_BUCKETS = 10
WINDOW_S = WINDOW_BUCKETS * BUCKET_US // 1_000_000


@dataclass(frozen=True)
class Case:
    """One input: so many buckets of so many tuples over so many keys.

    distinct  no key comes twice in a bucket.
    """

    name: str
    tuples: int
    keys: int
    buckets: int
    bucket_us: int = BUCKET_US
    open_windows: int = 0
    distinct: bool = False

    def directory(self, root: Path) -> Path:
        return root / self.name


def cases(quick: bool) -> list[Case]:
    few = 1 if quick else 4
    return [
        Case("check", 300, 20, 2 * WINDOW_BUCKETS + 2),
        Case("latency", 300, 100, 24 * few),
        Case("100k", 30_000, 100_000, 12 * few),
        Case("1m", 300_000, 1_000_000, 12 * few),
    ]


def ready(quick: bool) -> list[Case]:
    """What Flink and Holdfast take as fast as they can: enough that most of it finds them warm."""
    few = 1 if quick else 3
    return [
        Case("ready-100k", 30_000, 100_000, 182 * few),
        Case("ready-1m", 300_000, 1_000_000, 18 * few),
    ]


def sweep(quick: bool) -> list[Case]:
    """Buckets so short that all of them fall into the windows opened first.

    Each bucket changes as many windows, whatever the number that are open: of 3,000 keys drawn out
    of 10,000 one in seven has come before, of 10 million none, and that is not what is compared.
    """
    buckets, short = (90, 1000) if quick else (300, 1000)
    sizes = (10_000, 100_000, 1_000_000, 10_000_000)
    return [Case(f"sweep-{size}", 3_000, size, buckets, short, size, True) for size in sizes]


def many_queries(quick: bool) -> Case:
    """Ten queries over three sources, and one of them; so many tuples of each source a bucket."""
    return Case("queries", 1_000, 1_000, 90 if quick else 180)


def write_input(case: Case, root: Path) -> None:
    """One Parquet file for each bucket."""
    directory = case.directory(root)
    directory.mkdir()
    random = np.random.default_rng(7)
    for index in range(case.buckets):
        stime = np.sort(random.integers(0, case.bucket_us, case.tuples)) + index * case.bucket_us
        items = random.choice(case.keys, case.tuples, replace=not case.distinct)
        table = pa.table(
            {
                "at": pa.array(stime, pa.timestamp("us", tz="UTC")),
                "item": pa.array(items),
                "price": pa.array(random.integers(0, 1000, case.tuples), pa.int32()),
                "pad": pa.array([b"x" * 70] * case.tuples, pa.binary()),
            }
        )
        pq.write_table(table, directory / f"{index:05}.parquet", compression="none")


def write_halves(case: Case, root: Path) -> Path:
    """The same tuples for Flink, every second one in the other file.

    It takes the files of a directory in no order, and drops what comes late. So each of its two
    readers gets one file, in which the tuples are in order.
    """
    directory = root / f"{case.name}-halves"
    directory.mkdir()
    schema = pq.read_schema(next(case.directory(root).iterdir()))
    paths = [directory / f"{half}.parquet" for half in (0, 1)]
    writers = [pq.ParquetWriter(path, schema, compression="none") for path in paths]
    for path in sorted(case.directory(root).iterdir()):
        table = pq.read_table(path)
        for half, writer in enumerate(writers):
            writer.write_table(table.take(np.arange(half, table.num_rows, 2)))
    for writer in writers:
        writer.close()
    return directory
