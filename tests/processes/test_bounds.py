"""Bounds on the outputs of a replica, whose results are in no log, on real nodes over Flight."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.blocks import Block
from holdfast.client import Client
from holdfast.nodes.entry_node import EntryNode
from holdfast.producer import ProducerError
from tests.blocks_for_tests import in_memory
from tests.flight.nodes import read_until
from tests.processes.copies import Hosted

NETWORK = """
from holdfast import Network

network = Network("unlogged", bucket="200 ms", partitions=1)
load = network.source("load", "k bigint")
load.filter("k >= 0").output("let_go")
load.filter("k > -1").output("waited_for")
"""
DEPLOYMENT = """
network = "network.py"
[timing]
delay = "2 seconds"
heartbeat = "100 ms"
[sources.load]
[fragments.main]
delivery = "at-least-once"
[clients.gone]
output = "let_go"
[clients.late]
output = "waited_for"
[bounds]
bytes = 20_000
away = "2 seconds"
[bounds.let_go]
then = "retire"
[bounds.load]
bytes = "off"
"""


def wait(until: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, until
        time.sleep(0.02)


@pytest.mark.thorough
def test_beyond_them_a_client_is_let_go_of_or_the_source_waits(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = Hosted(tmp_path, NETWORK, DEPLOYMENT)
    entry = world._host("entry-load")._entry("entry-load")
    assert isinstance(entry, EntryNode)
    entry.start()
    node = None
    try:
        world.start("main-1")
        node = world.copies["main-1"]
        node._queued._limit = 0
        gone, late = node.copy.served["let_go"], node.copy.served["waited_for"]
        with world.producer_of("load") as producer:
            producer.send(pa.table({"k": list(range(2_000))}))
            wait(lambda: late.kept_tuples == 2_000)
            # Nobody reads: it is kept, where the memory is not, and its bytes are known.
            blocks = [frame.block for frame in list(late.stable)]
            assert all(isinstance(block, Block) and not in_memory(block) for block in blocks)
            wait(lambda: gone.first_id == 2_000)
            assert node.kept_sizes()["let_go"] == 0 < 20_000 < node.kept_sizes()["waited_for"]
            told = "let_go is not kept for gone any more, away for too long"
            wait(lambda: any(told in each for each in node.status()["problems"]))
            # The source has no bound of its own.
            told = (
                "the sources wait: main-1 is full: waited_for keeps 0.1 MB of 0.0 for late, which"
            )
            wait(lambda: any(told in each for each in entry.status()["problems"]))
            producer.send(pa.table({"k": list(range(2_000))}))
            with pytest.raises(ProducerError, match="has not acknowledged 1 batches"):
                producer.flush(1.0)
            assert entry.entry.served.next_id == 2_000
            # It is back.
            with Client.of(world.deployment.path, "waited_for", name="late") as client:
                read_until(client, 4_000, 60.0)
            producer.flush(60.0)
        assert not world.failures
    finally:
        if node is not None:
            world.stop("main-1")
        entry.stop()
