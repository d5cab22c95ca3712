"""Peers of a replica that restarts hundreds of times hold no more than they did at first."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.processes.copies import COMMON, World

RESTARTS = 200
DEPLOYMENT = (
    COMMON
    + """
[fragments.main]
protection = "race"
replicas = 2
[fragments.best]
replicas = 2
"""
)


def held(world: World) -> tuple[int, int, int]:
    """File descriptors and threads of this process, and how much its nodes have to tell."""
    told = sum(len(json.dumps(node.status())) for node in world.copies.values())
    return sum(1 for _ in Path("/proc/self/fd").iterdir()), threading.active_count(), told


@pytest.mark.long
@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_hundreds_of_restarts_leave_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    world = World(spark, tmp_path, DEPLOYMENT)
    try:
        world.go_on()
        counts: list[tuple[int, int, int]] = []
        for number in range(RESTARTS):
            world.stop("main-2")
            world.start("main-2")
            if number % 20 == 19:
                world.go_on()
                counts.append(held(world))
        early, late = counts[1], counts[-1]
        # Feeds open and close meanwhile; 160 restarts that left something would show.
        assert late[0] <= early[0] + 20, counts
        assert late[1] <= early[1] + 10, counts
        assert late[2] <= 1.5 * early[2], counts
        world.finish()
    finally:
        world.close()
