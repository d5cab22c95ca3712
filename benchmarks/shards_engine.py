"""The throughput of a fragment in one process and in shards, each a process with its own driver.

``work`` is one of them: for each bucket, a file that is named on its input beside the number of
shards, it takes its part, advances its engine and leaves its results in a file. Who measures gives
all of a fragment's processes a bucket at once, and merges what they made as the product does. The
first of two shards and the first of four are the same process, with an engine for each.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from holdfast import Network, window
from holdfast.frames import TIME
from holdfast.plans.fragment_plans import ShardPlan
from holdfast.routes import find_routes
from holdfast.slots import Routing
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.merging import Merge, MergeEngine
from holdfast.spark.session import get_session
from holdfast.spark.version import Version

BUCKET_US = 10_000_000
SERVERS = 5_000
OUTPUT = "averages"


def work(number: str, numbers: str, master: str, directory: str) -> None:
    """The life of a shard's process, one of each of some numbers of them, until its input ends."""
    network = Network("shards", bucket="10 seconds", spark=get_session(master))
    load = network.source("load", "server bigint, cpu double")
    sums = load.groupBy(window("10 seconds"), "server")
    sums.agg(F.avg("cpu").alias("cpu"), F.count("*").alias("readings")).output(OUTPUT)
    columns = find_routes(network).columns
    served = {
        shards: (
            ShardPlan("main", int(number), int(shards), Routing.KEY, columns),
            Version(Engine(network, Path(directory) / f"engine-{shards}")),
        )
        for shards in numbers.split(",")
    }
    print("ready", flush=True)
    for line in sys.stdin:
        shards, _, name = line.strip().partition(" ")
        plan, version = served[shards]
        path = Path(name)
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        start = int(path.stem) * BUCKET_US
        mine = plan.share.take("load", table)
        outputs = version.advance([Bucket(start, start + BUCKET_US, {"load": mine})])
        write(Path(directory) / path.name, outputs[OUTPUT])
        print("done", flush=True)


def write(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def read(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


class Worker:
    """A process that is one shard of each of some numbers of them."""

    def __init__(self, directory: Path, number: int, numbers: list[int], master: str) -> None:
        self.directory = directory / f"{number}-{master}"
        self.directory.mkdir()
        code = f"import sys; from {__name__} import work; work(*sys.argv[1:])"
        told = [str(number), ",".join(map(str, numbers)), master, str(self.directory)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *told],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def give(self, shards: int, path: Path) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{shards} {path}\n")

    def wait(self) -> None:
        """Until it has said its word."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        if said not in ("ready", "done"):
            raise RuntimeError(f"the worker of {self.directory} ended: {said!r}")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> None:
        try:
            self._process.wait(20.0)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Shards:
    """One number of shards, and how long each bucket took them."""

    def __init__(self, workers: list[Worker]) -> None:
        self.shards = len(workers)
        self.times: list[float] = []
        self._workers = workers

    def advance(self, path: Path) -> pa.Table:
        """Give everyone a bucket; what their results come to, merged."""
        started = time.monotonic()
        for worker in self._workers:
            worker.give(self.shards, path)
        for worker in self._workers:
            worker.wait()
        parts = {str(one.directory): read(one.directory / path.name) for one in self._workers}
        merge = Merge({name: table.schema for name, table in parts.items()}, {OUTPUT: tuple(parts)})
        start = int(path.stem) * BUCKET_US
        merging = Version(MergeEngine(merge))
        merged = merging.advance([Bucket(start, start + BUCKET_US, parts)])[OUTPUT]
        self.times.append(time.monotonic() - started)
        return merged


def make_bucket(directory: Path, number: int, tuples: int) -> Path:
    """A bucket of made-up readings, as a file."""
    random = np.random.default_rng(number)
    times = np.sort(random.integers(number * BUCKET_US, (number + 1) * BUCKET_US, tuples))
    ids = np.arange(number * tuples, (number + 1) * tuples)
    table = pa.table(
        {
            "stime": pa.array(times).cast(TIME),
            "tmax": pa.array(times).cast(TIME),
            "seq": ids,
            "server": random.integers(0, SERVERS, tuples),
            "cpu": random.random(tuples),
        }
    )
    path = directory / f"{number}.arrow"
    write(path, table)
    return path


def throughput(
    directory: Path, numbers: tuple[int, ...], rounds: int, tuples: int
) -> tuple[dict[str, int], dict[str, float], bool]:
    """By number of shards: tuples a second, the ratio to one replica; whether results are equal.

    One replica has both cores, a shard one. Rounds alternate, and the first two only warm up.
    """
    alone = Worker(directory, 1, [1], "local[2]")
    several = [each for each in numbers if each > 1]
    workers = [
        Worker(directory, number, [each for each in several if each >= number], "local[1]")
        for number in range(1, max(several) + 1)
    ]
    kinds = [Shards([alone] if each == 1 else workers[:each]) for each in numbers]
    identical = True
    try:
        for worker in (alone, *workers):
            worker.wait()
        for number in range(rounds + 2):
            path = make_bucket(directory, number, tuples)
            found = [kind.advance(path) for kind in kinds]
            identical &= all(each.equals(found[0]) for each in found)
            path.unlink()
        usual = {kind.shards: statistics.median(kind.times[2:]) for kind in kinds}
        pairs = {
            kind.shards: [
                one / mine for one, mine in zip(kinds[0].times[2:], kind.times[2:], strict=True)
            ]
            for kind in kinds
        }
    finally:
        for worker in (alone, *workers):
            worker.close()
        for worker in (alone, *workers):
            worker.end()
    rates = {str(shards): round(tuples / seconds) for shards, seconds in usual.items()}
    ratios = {str(shards): round(statistics.median(each), 3) for shards, each in pairs.items()}
    return rates, ratios, identical
