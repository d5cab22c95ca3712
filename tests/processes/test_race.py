"""Replicas that race, as real nodes over Flight: some fall silent or are lost, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.processes.copies import COMMON, COPIES, World

DEPLOYMENT = f"""{COMMON}
[fragments.main]
protection = "race"
[fragments.best]
protection = "race"
"""


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    made = World(spark, tmp_path, DEPLOYMENT)
    try:
        yield made
    finally:
        made.close()


def stable(world: World) -> bool:
    return all(world.copies[name].status()["state"] == "stable" for name in COPIES)


def shares(world: World, reader: str) -> dict[str, float]:
    (one,) = world.copies[reader].status()["inputs"].values()
    found: dict[str, float] = one["shares"]
    return found


@pytest.mark.thorough
def test_who_races_may_fall_silent_or_be_lost(world: World) -> None:
    world.read(lambda: stable(world) and shares(world, "best-1").keys() == {"main-1", "main-2"})
    assert sum(shares(world, "best-1").values()) == pytest.approx(1, abs=1e-3)
    # The one that is followed says nothing to anybody any more, and is not gone.
    for reader in ("best-1", "best-2"):
        world.copies["main-1"].links.cut(reader)
    world.go_on()
    for reader in ("best-1", "best-2"):
        world.copies["main-1"].links.heal(reader)
    world.go_on()
    # One replica of each fragment is lost.
    world.stop("main-2", "best-1")
    world.go_on()
    world.start("main-2", "best-1")
    world.read(lambda: stable(world))
    world.finish()
