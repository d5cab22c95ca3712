"""Replicas whose directories are deleted, as real nodes over Flight: they join, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.core.entry import EntryPoint
from holdfast.nodes.entry_node import EntryNode
from tests.processes.copies import COMMON, COPIES, World

RUNNING = """
[fragments.main]
replicas = 2
[fragments.best]
replicas = 2
checkpoint = "continuous"
extent = 8
interval = "5 ms"
period = "20 ms"
"""
STANDING_BY = """
[fragments.main]
protection = "hybrid"
[fragments.main.standby]
promote_after = "3 seconds"
[fragments.best]
protection = "passive"
[fragments.best.standby]
promote_after = "3 seconds"
"""
PAIRS = (("main-1", "main-2"), ("best-1", "best-2"))


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(spark, tmp_path, COMMON + request.param)
    try:
        made.read(lambda: made.view.stable is not None)
        yield made
    finally:
        made.close()


def entry(world: World) -> EntryPoint:
    node = world.entry
    assert isinstance(node, EntryNode)
    return node.entry


def trimmed(world: World) -> bool:
    """Nobody keeps anything any more that an empty replica could begin with."""
    first_ids = [entry(world).served.first_id]
    for name in ("main-1", "main-2"):
        first_ids += world.copies[name].status()["trimmed_below"].values()
    return min(first_ids) > 0


def stable(world: World, *names: str) -> bool:
    return all(world.copies[name].status()["state"] == "stable" for name in names)


@pytest.mark.thorough
@pytest.mark.parametrize("world", [RUNNING], indirect=True)
def test_replicas_that_lost_their_directories_join_and_stand_in(world: World) -> None:
    world.read(lambda: trimmed(world) and stable(world, *COPIES))
    # One of each fragment, one of which keeps window states in its log.
    world.lose("main-2", "best-2")
    world.go_on()
    world.start("main-2", "best-2")
    world.read(lambda: stable(world, "main-2", "best-2"))
    lent = [world.copies[name].status()["lent"]["sent"] for name in ("main-1", "best-1")]
    assert lent == [1, 1], "one attempt was enough"
    assert entry(world).consumers.lives.keys() == {"main-2"}
    # They have all it takes: the others are lost, too, and join from them.
    world.lose("main-1", "best-1")
    world.go_on()
    world.start("main-1", "best-1")
    world.read(lambda: stable(world, *COPIES))
    # What they had before they joined is of a life that is over.
    world.stop("main-2")
    world.start("main-2")
    world.read(lambda: stable(world, "main-2"))
    world.finish()


def joins(world: World, name: str) -> bool:
    status = world.copies[name].status()
    return status["state"] == "joining" and "why" in status


@pytest.mark.thorough
@pytest.mark.parametrize("world", [RUNNING], indirect=True)
def test_one_that_joins_may_be_lost_again_and_so_may_its_partner(world: World) -> None:
    world.read(lambda: trimmed(world) and stable(world, *COPIES))
    for partner, lost in PAIRS:
        world.lose(lost)
        # Its partner cannot send it anything, so that it is in the middle of it.
        world.copies[partner].links.cut(lost)
        world.start(lost)
        world.read(partial(joins, world, lost))
        # Lost again, with what it had of it.
        world.lose(lost)
        world.start(lost)
        world.read(partial(joins, world, lost))
        # Now the partner, which has its disk.
        world.stop(partner)
        world.start(partner)
        world.copies[partner].links.heal(lost)
        world.read(lambda: stable(world, *COPIES))
        # As soon as it has begun, whatever it does by then.
        for _ in range(3):
            world.lose(lost)
            world.start(lost)
        world.read(lambda: stable(world, *COPIES))
        # A process that is never without a job lends, too, and it is told.
        with world.copies[partner].place.quiet.job():
            world.lose(lost)
            world.start(lost)
            world.read(lambda: stable(world, *COPIES))
        lenders = world.copies[partner]._shippers.lent.values()
        assert sum(one.total.beside_seconds for one in lenders) > 0.0
    world.finish()


def sleepers(world: World) -> list[str]:
    """Of each two copies the one that sleeps and holds a recent checkpoint, once there is one."""
    found: list[str] = []

    def one_of_each() -> bool:
        found[:] = [name for pair in PAIRS for name in pair if world.is_protected(name)()]
        return len(found) == len(PAIRS)

    world.read(one_of_each)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("world", [STANDING_BY], indirect=True)
def test_copies_that_lost_their_directories_are_sent_what_they_need(world: World) -> None:
    world.read(lambda: entry(world).served.first_id > 0)
    # Those that sleep: the primaries send them their whole state.
    lost = sleepers(world)
    world.lose(*lost)
    world.go_on()
    world.start(*lost)
    sleepers(world)
    # Those that have not been lost: the new ones hold all that it takes to stand in.
    others = [name for name in COPIES if name not in lost]
    world.lose(*others)
    world.read(lambda: all(world.is_in(name, "primary")() for name in lost))
    world.go_on()
    # They were primaries of an earlier term, perhaps, and must not begin with nothing.
    world.start(*others)
    sleepers(world)
    world.finish()
