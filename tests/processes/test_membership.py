"""Replicas that are added and removed while everything runs, as real nodes over Flight."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.cluster.members import (
    MembershipError,
    add_replica,
    move_replica,
    remove_replica,
    retire_client,
)
from holdfast.deployment import load_deployment
from holdfast.errors import Removed
from tests.processes.copies import COMMON, COPIES, World

DEPLOYMENT = f"""{COMMON}
[clients.away]
output = "best"
[fragments.main]
replicas = 2
[fragments.best]
replicas = 2
"""


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    made = World(spark, tmp_path, DEPLOYMENT)
    try:
        made.read(lambda: made.view.stable is not None)
        yield made
    finally:
        made.close()


def stable(world: World, *names: str) -> bool:
    return all(world.copies[name].status()["state"] == "stable" for name in names)


def ended(world: World) -> str:
    """What one says that ends because it takes part no longer."""
    deadline = time.monotonic() + 60.0
    while not world.failures:
        assert time.monotonic() < deadline, world.story()
        event = world.client.read(0.05)
        if event is not None:
            world.view.apply(event)
    (failure,) = world.failures
    world.failures.clear()
    assert isinstance(failure, Removed)
    return str(failure)


@pytest.mark.thorough
def test_replicas_come_go_and_move_and_a_client_is_retired(world: World) -> None:
    path = world.deployment.path
    world.read(lambda: stable(world, *COPIES))
    world.go_on()
    # A client that never came: everything is kept for it.
    kept = world.copies["best-1"].status()["trimmed_below"]["best"]
    assert kept == 0
    assert retire_client(path, "away").unaware == ()
    world.read(lambda: world.copies["best-1"].status()["trimmed_below"]["best"] > 0)
    # One more replica: it joins, and everybody knows it.
    assert add_replica(path, "main")[0] == "main-3"
    world.deployment = load_deployment(path)
    world.start("main-3")
    world.read(lambda: stable(world, *world.copies))
    # One of the first two goes, and is told so; the new one stands in for the other.
    assert remove_replica(path, "main-1").unaware == ()
    assert "main-1 was retired or removed (epoch 3" in ended(world)
    world.stop("main-1")
    world.stop("main-2")
    world.go_on()
    world.deployment = load_deployment(path)
    world.start("main-2")
    world.read(lambda: stable(world, *world.copies))
    # Another one takes the place of one, somewhere else.
    with ThreadPoolExecutor() as pool:
        moving = pool.submit(move_replica, path, "best-2", "127.0.0.1")
        world.read(lambda: "best-3" in load_deployment(path).processes)
        world.deployment = load_deployment(path)
        world.start("best-3")
        assert "best-2 was retired or removed (epoch 5" in ended(world)
        assert moving.result(60.0)[0] == "best-3"
    world.stop("best-2")
    world.go_on()
    world.finish()


COPIES_DEPLOYMENT = f"""{COMMON}
[fragments.main]
protection = "hybrid"
[fragments.best]
protection = "passive"
"""


@pytest.mark.thorough
def test_copies_move_and_one_that_is_alone_gets_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(spark, tmp_path, COPIES_DEPLOYMENT)
    path = world.deployment.path
    try:
        world.read(world.is_protected("main-2", "best-2"))
        # The copy that runs goes elsewhere: the other one takes over first.
        with ThreadPoolExecutor() as pool:
            moving = pool.submit(move_replica, path, "main-1", "127.0.0.1")
            world.read(lambda: "main-3" in load_deployment(path).processes)
            assert world.copies["main-2"].status()["copy"] == "primary"
            world.deployment = load_deployment(path)
            world.start("main-3")
            assert "main-1 was retired or removed" in ended(world)
            world.read(moving.done)
            assert moving.result()[0] == "main-3"
        world.stop("main-1")
        world.read(world.is_protected("main-3"))
        world.stop("main-2")
        world.go_on()
        world.deployment = load_deployment(path)
        world.start("main-2")
        world.read(world.is_protected("main-2"))
        # A passive one is alone for a while, and then gets another.
        with ThreadPoolExecutor() as pool:
            removing = pool.submit(remove_replica, path, "best-1")
            assert "best-1 was retired or removed" in ended(world)
            world.read(removing.done)
            assert removing.result().unaware == ()
        world.stop("best-1")
        world.go_on()
        assert world.copies["best-2"].status()["copy"] == "primary"
        with pytest.raises(MembershipError, match="the only replica of best"):
            remove_replica(path, "best-2")
        with pytest.raises(MembershipError, match="has its two copies, main-2 and main-3"):
            add_replica(path, "main")
        assert add_replica(path, "best")[0] == "best-3"
        world.deployment = load_deployment(path)
        world.start("best-3")
        world.read(world.is_protected("best-3"))
        world.stop("best-2")
        world.go_on()
        world.finish()
    finally:
        world.close()
