"""Peers of those who restart hundreds of times hold no more than they did at first."""

from __future__ import annotations

import json
import threading
import time
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.client import Client
from holdfast.producer import Producer
from tests.processes.copies import COMMON, World

ROUNDS = 30  # each: a replica once, a client and a producer five times
DEPLOYMENT = (
    COMMON
    + """
[fragments.main]
protection = "race"
replicas = 2
[fragments.best]
replicas = 2
[clients.second]
output = "best"
"""
)


def held(world: World) -> tuple[int, int, int]:
    """File descriptors and threads of this process, and how much its nodes have to tell."""
    told = sum(len(json.dumps(node.status())) for node in world.copies.values())
    return sum(1 for _ in Path("/proc/self/fd").iterdir()), threading.active_count(), told


def read_something(world: World, next_id: int) -> int:
    """A second client, which comes again under its name; how far it has got."""
    path = world.deployment.path
    with closing(Client.of(path, "best", name="second", next_id=next_id)) as client:
        deadline = time.monotonic() + 60.0
        while client.read(0.05) is None:
            assert time.monotonic() < deadline, world.story()
        return client.next_id


def send_something(world: World) -> None:
    with closing(Producer.of(world.deployment.path, "load", name="second")) as producer:
        producer.send(pa.table({"k": [1], "v": [1.0]}))


@pytest.mark.long
@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_hundreds_of_restarts_leave_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    world = World(spark, tmp_path, DEPLOYMENT)
    try:
        world.go_on()
        next_id, counts = 0, list[tuple[int, int, int]]()
        for number in range(ROUNDS):
            world.stop("main-2")
            for _ in range(5):
                next_id = read_something(world, next_id)
                send_something(world)
            world.start("main-2")
            if number % 5 == 4:
                world.go_on()
                counts.append(held(world))
        early, late = counts[0], counts[-1]
        # Feeds open and close meanwhile; 250 lives that left something would show.
        assert late[0] <= early[0] + 20 + ROUNDS, counts
        assert late[1] <= early[1] + 10, counts
        assert late[2] <= 1.5 * early[2], counts
        world.finish()
    finally:
        world.close()
