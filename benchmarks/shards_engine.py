"""The throughput of a fragment in one process and in shards, each a process with its own driver.

``work`` is one of them: for each bucket, a file that is named on its input, it takes its part,
advances its engine and leaves its results in a file. Who measures gives all of a fragment's
processes a bucket at once, and merges what they made as the product does.
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


def work(number: str, shards: str, master: str, directory: str) -> None:
    """The life of a shard's process: until its input ends."""
    network = Network("shards", bucket="10 seconds", spark=get_session(master))
    load = network.source("load", "server bigint, cpu double")
    sums = load.groupBy(window("10 seconds"), "server")
    sums.agg(F.avg("cpu").alias("cpu"), F.count("*").alias("readings")).output(OUTPUT)
    routes = find_routes(network)
    plan = ShardPlan("main", int(number), int(shards), Routing.KEY, routes.columns)
    version = Version(Engine(network, Path(directory) / "engine"))
    print("ready", flush=True)
    for line in sys.stdin:
        path = Path(line.strip())
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


class Shards:
    """The processes of one number of shards."""

    def __init__(self, directory: Path, shards: int, master: str) -> None:
        self.shards = shards
        self.times: list[float] = []
        self._directories = []
        self._workers = []
        for number in range(1, shards + 1):
            own = directory / f"{number}-of-{shards}"
            own.mkdir()
            self._directories.append(own)
            code = f"import sys; from {__name__} import work; work(*sys.argv[1:])"
            command = [sys.executable, "-c", code]
            command += [str(number), str(shards), master, str(own)]
            self._workers.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
                )
            )

    def wait(self) -> None:
        """Until each has said its word."""
        for worker in self._workers:
            assert worker.stdout is not None
            said = worker.stdout.readline().strip()
            if said not in ("ready", "done"):
                raise RuntimeError(f"a worker of {self.shards} shards ended: {said!r}")

    def advance(self, path: Path) -> pa.Table:
        """Give everyone a bucket; what their results come to, merged."""
        started = time.monotonic()
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.write(f"{path}\n")
        self.wait()
        parts = {str(own): read(own / path.name) for own in self._directories}
        merge = Merge({name: table.schema for name, table in parts.items()}, {OUTPUT: tuple(parts)})
        start = int(path.stem) * BUCKET_US
        merging = Version(MergeEngine(merge))
        merged = merging.advance([Bucket(start, start + BUCKET_US, parts)])[OUTPUT]
        self.times.append(time.monotonic() - started)
        return merged

    def close(self) -> None:
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.close()
        for worker in self._workers:
            try:
                worker.wait(20.0)
            except subprocess.TimeoutExpired:
                worker.kill()


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
    kinds = [Shards(directory, each, "local[2]" if each == 1 else "local[1]") for each in numbers]
    identical = True
    try:
        for kind in kinds:
            kind.wait()
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
        for kind in kinds:
            kind.close()
    rates = {str(shards): round(tuples / seconds) for shards, seconds in usual.items()}
    ratios = {str(shards): round(statistics.median(each), 3) for shards, each in pairs.items()}
    return rates, ratios, identical
