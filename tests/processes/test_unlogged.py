"""Results that are in no log have a bound and are on disk, too: on a real node over Flight."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from holdfast.blocks import Block
from holdfast.nodes.entry_node import EntryNode
from tests.blocks_for_tests import in_memory
from tests.processes.copies import Hosted

NETWORK = """
from holdfast import Network

network = Network("unlogged", bucket="200 ms", partitions=1)
network.source("load", "k bigint").filter("k >= 0").output("some")
"""
DEPLOYMENT = """
network = "network.py"
[timing]
delay = "2 seconds"
heartbeat = "100 ms"
[sources.load]
[fragments.main]
delivery = "at-least-once"
[clients.reader]
output = "some"
[bounds.some]
bytes = 20_000
away = "2 seconds"
then = "retire"
"""


def wait(until: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_of_a_replica_that_delivers_at_least_once(spark: SparkSession, tmp_path: Path) -> None:
    world = Hosted(tmp_path, NETWORK, DEPLOYMENT)
    entry = world._host("entry-load")._entry("entry-load")
    assert isinstance(entry, EntryNode)
    entry.start()
    node = None
    try:
        world.start("main-1")
        node = world.copies["main-1"]
        node._queued._limit = 0
        served = node.copy.served["some"]
        with world.producer_of("load") as producer:
            producer.send(pa.table({"k": list(range(2_000))}))
            # Nobody reads: it is kept, where the memory is not, and its bytes are known.
            wait(lambda: served.kept_tuples == 2_000 or bool(served.acknowledgements.lapsed))
            blocks = [frame.block for frame in list(served.stable)]
            assert all(isinstance(block, Block) and not in_memory(block) for block in blocks)
            told = "some is not kept for reader any more, away for too long"
            wait(lambda: told in node.status()["problems"])
            wait(lambda: served.first_id == 2_000 and node.kept_sizes() == {"some": 0})
            # So its input need not be kept either.
            wait(lambda: entry.entry.served.first_id == 2_000)
        assert not world.failures
    finally:
        if node is not None:
            world.stop("main-1")
        entry.stop()
