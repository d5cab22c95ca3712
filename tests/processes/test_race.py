"""Replicas that race, as real nodes over Flight: some fall silent or are lost, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.nodes.entry_node import EntryNode
from tests.processes.copies import COMMON, World

DEPLOYMENT = f"""{COMMON}
[fragments.main]
protection = "race"
[fragments.best]
protection = "race"
"""


THREE = f"""{COMMON}
[fragments.main]
protection = "race"
replicas = 3
[fragments.best]
protection = "race"
replicas = 3
"""
ALL = tuple(f"{fragment}-{number}" for fragment in ("main", "best") for number in (1, 2, 3))


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    made = World(spark, tmp_path, DEPLOYMENT)
    try:
        yield made
    finally:
        made.close()


def stable(world: World) -> bool:
    return all(node.status()["state"] == "stable" for node in world.copies.values())


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


@pytest.mark.thorough
def test_two_of_three_may_be_lost_at_once_or_one_cut_off(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(spark, tmp_path, THREE, ALL)
    try:
        world.read(lambda: stable(world))
        # Those that are followed among them.
        world.stop("main-1", "main-2", "best-1", "best-2")
        world.go_on()
        world.start("main-1", "main-2", "best-1", "best-2")
        world.read(lambda: stable(world))
        # Nothing that one sends arrives, and nothing that is sent to it.
        main, best = world.copies["best-3"].status()["inputs"], world.client.following
        for silent in {*(str(each["from"]) for each in main.values()), str(best)}:
            cut_off(world, silent)
        world.go_on()
        world.finish()
    finally:
        world.close()


def cut_off(world: World, silent: str) -> None:
    others = {name: node.links for name, node in world.copies.items() if name != silent}
    assert isinstance(world.entry, EntryNode)
    for name, links in {**others, world.entry.name: world.entry.links}.items():
        links.cut(silent)
        world.copies[silent].links.cut(name)
    world.client.links.cut(silent)
    world.copies[silent].links.cut("reader")


MIXED = {
    "continuous before hybrid": ('protection = "race"\ncheckpoint = "continuous"', "hybrid"),
    "passive before continuous": ('protection = "passive"', 'race"\ncheckpoint = "continuous'),
    "hybrid before undo": ('protection = "hybrid"', 'race"\nreconcile = "undo'),
    "active after race": ('protection = "race"', "active"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", MIXED)
def test_fragments_that_race_and_others_in_one_network(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    main, best = MIXED[name]
    deployment = f'{COMMON}[fragments.main]\n{main}\n[fragments.best]\nprotection = "{best}"\n'
    world = World(spark, tmp_path, deployment)
    try:
        world.go_on()
        for lost in ("main-1", "best-1"):
            world.stop(lost)
            world.go_on()
            world.start(lost)
            world.go_on()
        # One comes back without anything, and joins.
        racing = "main-2" if "race" in main else "best-2"
        world.lose(racing)
        world.go_on()
        world.start(racing)
        state = world.copies[racing].status
        world.read(lambda: state()["state"] == "stable")
        world.finish()
    finally:
        world.close()
