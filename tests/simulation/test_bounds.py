"""What is kept for somebody who is away, or stands still, stays within its bound."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from holdfast.core.settings import (
    SECOND_US,
    Bound,
    Delivery,
    Policy,
    Protection,
    Reconcile,
    StandbySettings,
    Then,
    Timing,
)
from holdfast.simulation import networks
from holdfast.simulation.executor import Computation, Union
from holdfast.simulation.faults import Fault, FaultKind, Schedule
from holdfast.simulation.layout import place
from holdfast.simulation.mutations import MUTATIONS
from holdfast.simulation.networks import Fragment
from holdfast.simulation.process import Process
from holdfast.simulation.run import Verdict, shaped
from holdfast.simulation.run import run as simulated
from holdfast.simulation.source import Source
from holdfast.simulation.world import World

TIMING = Timing(bucket_us=250_000, delay_us=2 * SECOND_US)
FAST = (Policy.PROCESS, Policy.PROCESS, Reconcile.RESTORE)
# The simulator takes each frame for a thousand bytes.
FRAMES = 40
# What comes until somebody counts as away, between two looks, a second apart, and is under way.
BETWEEN = 100
AWAY_US = 3 * SECOND_US
FROM_US, TO_US = 8 * SECOND_US, 68 * SECOND_US
RETIRE = Bound(FRAMES * 1_000, None, Then.RETIRE, AWAY_US)
BLOCK = replace(RETIRE, then=Then.BLOCK)
IN_MEMORY = StandbySettings(("f00a", "f00b"), Protection.PASSIVE, persist=False)
PASSIVE = replace(IN_MEMORY, persist=True)


def fragment(name: str, inputs: tuple[str, ...], *replicas: str) -> Fragment:
    return Fragment(name, Computation(((f"{name}.0", Union(inputs)),)), replicas, *FAST)


ALONE = fragment("f00", ("s0",), "f00a")
TWO = fragment("f00", ("s0",), "f00a", "f00b")


def world_of(
    fragments: tuple[Fragment, ...],
    suffers: tuple[str, ...],
    what: FaultKind = FaultKind.PARTITION,
    entries: Bound | None = None,
    until_us: int = TO_US,
) -> World:
    """Unions of sources, with a client at the end; something befalls some for a minute."""
    last = fragments[-1].plan.outputs[0][0]
    sources = tuple(sorted({each for one in fragments for each in one.inputs if each[0] == "s"}))
    spec = networks.build(TIMING, sources, fragments, (last,))
    servers = place(spec, Random(0))
    faults = tuple(
        Fault(what, FROM_US, until_us, (servers[each],)) for each in sorted(set(suffers))
    )
    world = World(spec, Schedule(faults, TO_US + spec.calm_us), Random(1), servers)
    for entry in world.entries.values():
        readers = tuple(one.addresses for one in fragments if entry.settings.stream in one.inputs)
        bound = None if entries is None else replace(entries, fragments=readers)
        entry.settings = replace(entry.settings, bound=bound)
        assert isinstance(entry.source, Source)
        entry.source._counts = [1, 2]
    return world


def run(world: World) -> None:
    """Run until late in the failure."""
    world.begin()
    world.clock.run_until(TO_US - SECOND_US)


def finish(world: World) -> None:
    """Run to the end, with its checks."""
    world.clock.run_until(world.schedule.end)
    world.finish()
    for one in world.replicas.values():
        assert one.driver.view().full == one.driver.view().beyond == ""
    for entry in world.entries.values():
        assert entry.driver.view().full == entry.driver.view().beyond == ""


def kept(process: Process) -> int:
    """Frames in the log of a process with one stream."""
    return sum(size for _, size in process.kept_sizes()) // 1_000


@pytest.mark.parametrize(
    "made",
    [
        replace(ALONE, delivery=Delivery.AT_LEAST_ONCE),
        replace(ALONE, delivery=Delivery.AT_MOST_ONCE),
        replace(TWO, standby=IN_MEMORY),
        ALONE,
    ],
    ids=["at-least-once", "at-most-once", "in-memory", "exactly-once"],
)
def test_results_that_are_in_no_log_have_a_bound_too(made: Fragment) -> None:
    world = world_of((replace(made, bound=RETIRE),), ("client0",))
    run(world)
    served = world.replicas["f00a"].driver.served["f00.0"]
    assert served.acknowledgements.lapsed == {"client0"}
    assert len(served.stable) <= FRAMES + BETWEEN
    assert served.first_id > 0


@pytest.mark.parametrize(
    "made",
    [
        (ALONE,),
        (TWO,),
        (replace(TWO, standby=PASSIVE),),
        (ALONE, fragment("f10", ("f00.0",), "f10a")),
    ],
    ids=["one", "two", "passive", "two-levels"],
)
def test_the_source_waits_while_an_output_is_beyond_its_bound(made: tuple[Fragment, ...]) -> None:
    """A client is away for long: only its output has a bound, and what is taken is computed."""
    made = (*made[:-1], replace(made[-1], bound=BLOCK))
    world = world_of(made, ("client0",))
    run(world)
    entry = world.entries["entry0"]
    assert f"{made[-1].name}.0 keeps" in entry.driver.view().full
    assert "for client0, which is away" in entry.driver.view().full
    for process in (entry, *world.replicas.values()):
        assert kept(process) <= FRAMES + BETWEEN
    for name in made[-1].addresses:
        assert world.replicas[name].driver.served[f"{made[-1].name}.0"].next_id == (
            entry.driver.served.next_id
        ), "all that was taken is out"
    finish(world)


def test_it_waits_for_replicas_that_join_and_find_nobody_with_a_state() -> None:
    world = world_of((TWO,), ("f00a", "f00b"), FaultKind.DISK_LOST, BLOCK, 9 * SECOND_US)
    run(world)
    entry = world.entries["entry0"]
    assert all(world.replicas[name].driver.joining is not None for name in TWO.addresses)
    assert "which is there and has acknowledged nothing for" in entry.driver.view().full
    assert kept(entry) <= FRAMES + BETWEEN
    assert not entry.driver.served.acknowledgements.lapsed


@pytest.mark.parametrize("then", [Then.BLOCK, Then.RETIRE])
def test_it_waits_while_another_input_of_its_readers_is_gone(then: Then) -> None:
    bound = replace(BLOCK, then=then)
    made = fragment("f00", ("s0", "s1"), "f00a", "f00b")
    world = world_of((made,), ("entry1",), entries=bound)
    run(world)
    entry = world.entries["entry0"]
    assert "s0 keeps" in entry.driver.view().full
    assert kept(entry) <= FRAMES + BETWEEN
    assert not entry.driver.served.acknowledgements.lapsed
    finish(world)


@pytest.mark.parametrize("made", [TWO, replace(TWO, standby=PASSIVE)], ids=["two", "passive"])
def test_it_waits_for_one_whose_disk_is_full(made: Fragment) -> None:
    """The last of a group: of two copies the one that sleeps."""
    world = world_of((made,), (made.addresses[-1],), FaultKind.DISK_FULL, BLOCK)
    run(world)
    entry = world.entries["entry0"]
    told = f"for {made.addresses[-1]}, which is there and has acknowledged nothing for"
    assert told in entry.driver.view().full
    assert kept(entry) <= FRAMES + BETWEEN
    finish(world)


@pytest.mark.parametrize(("seed", "let_go"), [(31, True), (4, False)])
def test_whoever_is_away_all_is_whole_in_the_end(seed: int, let_go: bool) -> None:
    scenario = shaped(seed, "withheld")
    assert scenario is not None
    world = World(scenario.spec, scenario.schedule, Random(seed), scenario.server_of)
    world.run()
    assert bool(world.bounds.let_go) is let_go
    assert world.bounds.waited


@pytest.mark.parametrize(
    ("name", "seed", "said"),
    [
        ("wait for nobody who is there and stands still", 1, "bounded: entry0 keeps"),
        ("tell nobody that a replica is full", 3, "bounded: f00a keeps"),
        ("go on being full when there is room", 3, "no loss"),
        ("let go of the last replica", 7, "no other replica of its fragment with a state"),
        ("let go of one that is there", 3, "bounded"),
    ],
)
def test_mistakes_with_a_bound_are_found(name: str, seed: int, said: str) -> None:
    (mutation,) = [one for one in MUTATIONS if one.name == name]
    scenario = shaped(seed, "withheld")
    assert scenario is not None
    with mutation.applied():
        result = simulated(scenario)
    assert result.verdict is Verdict.WRONG
    assert said in result.reason
