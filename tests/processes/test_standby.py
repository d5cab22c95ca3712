"""Copies that stand by, as real nodes over Flight: lost, back, lost again, wrong alarms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.processes.copies import COPIES, World

DEPLOYMENT = """
network = "network.py"
chaos = true
[timing]
delay = "4 seconds"
alpha = 0.9
heartbeat = "100 ms"
[sources.load]
keep = true
[clients.reader]
output = "best"
[fragments.main]
protection = "{main}"
[fragments.main.standby]
promote_after = "1500 ms"
persist = {persist}
[fragments.best]
protection = "{best}"
{knobs}
[fragments.best.standby]
promote_after = "1500 ms"
persist = {persist}
"""
# The copy that waits is fed by the other's output log.
CONTINUOUS = 'checkpoint = "continuous"\nextent = 8\ninterval = "5 ms"\nperiod = "20 ms"'


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(spark, tmp_path, DEPLOYMENT.format(**{"knobs": "", **request.param}))
    try:
        made.read(lambda: made.view.stable is not None)
        made.read(made.is_protected("main-2", "best-2"))
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    "world",
    [
        {"main": "hybrid", "best": "passive", "persist": "true", "knobs": CONTINUOUS},
        pytest.param(
            {"main": "passive", "best": "hybrid", "persist": "true", "knobs": CONTINUOUS},
            marks=pytest.mark.thorough,
        ),
    ],
    indirect=True,
    ids=["passive", "hybrid"],
)
def test_copies_lost_in_every_order_leave_no_trace(world: World) -> None:
    # A wrong alarm: both run, and the second goes back to sleep.
    world.cut("main-1", "main-2")
    world.read(world.is_in("main-2", "awake", "primary"))
    world.heal("main-1", "main-2")
    world.read(lambda: any(world.is_protected(name)() for name in ("main-1", "main-2")))
    # The secondary is lost while it sleeps.
    sleeper = next(name for name in ("main-1", "main-2") if world.is_protected(name)())
    world.stop(sleeper)
    world.go_on()
    world.start(sleeper)
    world.read(world.is_protected(sleeper))
    # Two fragments in a row lose their primaries at once.
    (primary,) = {"main-1", "main-2"} - {sleeper}
    world.stop(primary, "best-1")
    world.read(world.is_in(sleeper, "primary"))
    world.read(world.is_in("best-2", "primary"))
    world.go_on()
    world.start(primary, "best-1")
    world.read(world.is_protected(primary, "best-1"))
    # Then those that took over.
    world.stop(sleeper, "best-2")
    world.read(world.is_in(primary, "primary"))
    world.read(world.is_in("best-1", "primary"))
    world.go_on()
    world.start(sleeper, "best-2")
    world.read(world.is_protected(sleeper, "best-2"))
    # Both copies of both fragments at once.
    world.stop(*COPIES)
    world.start(*COPIES)
    world.go_on()
    world.finish()


@pytest.mark.parametrize(
    "world", [{"main": "passive", "best": "hybrid", "persist": "false"}], indirect=True
)
def test_one_copy_in_memory_is_enough(world: World) -> None:
    # Lost and back again before the other has replaced it: it reads the other's state.
    world.stop("best-1")
    world.read(world.is_in("best-2", "awake"))
    world.start("best-1")
    world.read(lambda: any(world.is_protected(name)() for name in ("best-1", "best-2")))
    world.go_on()
    # The passive one, and the secondary while it is awake.
    world.stop("main-1")
    world.read(world.is_in("main-2", "primary"))
    world.go_on()
    world.start("main-1")
    world.read(world.is_protected("main-1"))
    world.finish()
