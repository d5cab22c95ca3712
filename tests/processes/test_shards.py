"""Fragments with shards: what a deployment file makes of them, and real nodes that lose some."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.cluster.changed import going_on
from holdfast.cluster.members import MembershipError
from holdfast.cluster.networks import load_network
from holdfast.cluster.rescaling import Rescaled, rescale
from holdfast.cluster.status import node_status
from holdfast.core.messages import Part
from holdfast.core.settings import Delivery, Protection, Reconcile
from holdfast.deployment import Deployment, DeploymentError, load_deployment
from holdfast.errors import Removed, StateError
from holdfast.frames import SEQ, STIME, TMAX
from holdfast.nodes.replica_status import shard_status
from holdfast.plans.fragment_plans import FragmentPlan, FragmentStream, Routes
from holdfast.plans.membership_file import change_membership
from holdfast.plans.plan import Plan, SourcePlan, deployed, is_planned, read_plan, write_plan
from holdfast.plans.topology import Topology
from holdfast.slots import SLOTS, Routing
from holdfast.testing.deployed import Killer, Load, expected_file, supervised, wait_for_lines
from tests.processes.copies import COMMON, NETWORK, World

SERVERS = """
[servers.east]
listen = "10.0.0.2:4700"
[servers.west]
listen = "10.0.0.3:4700"
"""


def written(directory: Path, fragment: str, more: str = "") -> Deployment:
    (directory / "network.py").write_text("")
    text = f'network = "network.py"\n{more}[sources.load]\nlisten = "10.0.0.1"\n'
    (directory / "deployment.toml").write_text(f"{text}[fragments.main]\n{fragment}\n")
    return load_deployment(directory / "deployment.toml")


# -- what a file means ----------------------------------------------------------------------


def test_each_shard_is_a_fragment_and_one_merges_them(tmp_path: Path) -> None:
    deployment = written(tmp_path, 'shards = 3\nwhile_failed = "delay"\non_error = "dead-letter"')
    assert list(deployment.fragments) == ["main.1", "main.2", "main.3", "main"]
    shard, merging = deployment.fragments["main.2"], deployment.fragments["main"]
    assert shard.shard is not None
    assert (shard.shard.number, shard.shard.shards, shard.shard.routing) == (2, 3, None)
    assert shard.on_error == "dead-letter"
    assert merging.merges == ("main.1", "main.2", "main.3")
    assert merging.while_failed is shard.while_failed
    assert merging.reconcile is Reconcile.UNDO
    names = ["entry-load", "main.1-1", "main.2-1", "main.3-1", "main-1"]
    assert list(deployment.processes) == names
    # Merging needs no Spark: three drivers share the machine.
    assert deployment.drivers_beside("main.1-1") == 3


def test_copies_form_a_ring_of_processes(tmp_path: Path) -> None:
    ring = 'shards = ["10.0.0.1", "east", "west"]\nprotection = "hybrid"\nrouting = "key"'
    deployment = written(tmp_path, ring, SERVERS)
    assert deployment.processes == {
        "entry-load": ("entry-load",),
        "main.1": ("main.1-1", "main.3-2"),
        "main.2": ("main.1-2", "main.2-1"),
        "main.3": ("main.2-2", "main.3-1"),
        "main-1": ("main-1",),
        "main-2": ("main-2",),
    }
    assert deployment.hosted_by("east") == ("main.2", "main-2")
    assert deployment.hosted_by("west") == ("main.3",)
    for name in ("main.1", "main.2", "main.3"):
        spec = deployment.fragments[name]
        assert spec.protection is Protection.HYBRID
        assert spec.standby is not None
        assert spec.standby.copies == (f"{name}-1", f"{name}-2")
    assert deployment.fragments["main"].protection is Protection.ACTIVE


def test_more_copies_are_at_the_shards_that_follow(tmp_path: Path) -> None:
    ring = 'shards = 4\nprotection = "hybrid"\ncopies = 2\nheirs = "least-loaded"'
    deployment = written(tmp_path, ring)
    assert deployment.processes == {
        "entry-load": ("entry-load",),
        "main.1": ("main.1-1", "main.3-3", "main.4-2"),
        "main.2": ("main.1-2", "main.2-1", "main.4-3"),
        "main.3": ("main.1-3", "main.2-2", "main.3-1"),
        "main.4": ("main.2-3", "main.3-2", "main.4-1"),
        # As many may be lost of what merges them.
        **{f"main-{number}": (f"main-{number}",) for number in (1, 2, 3)},
    }
    standby = deployment.fragments["main.4"].standby
    assert standby is not None
    assert standby.copies == ("main.4-1", "main.4-2", "main.4-3")
    assert (standby.by_load, standby.returns) == (True, True)
    write_plan(deployment, plan_with(Routes({"load": ("k",)})))
    plan = read_plan(deployment)
    shard = plan.fragments["main.4"].shard
    settings = Topology(deployment, plan).replica("main.4-1")
    assert shard_status(shard, settings, 2)["shard"]["heirs"] == ["main.1", "main.2"]


def test_parts_of_a_shard_are_inherited_by_different_survivors(tmp_path: Path) -> None:
    ring = 'shards = ["10.0.0.1", "east", "west"]\nprotection = "hybrid"\nheirs = "spread"'
    deployment = written(tmp_path, ring, SERVERS)
    assert deployment.processes == {
        "entry-load": ("entry-load",),
        "main.1": ("main.1.1-1", "main.1.2-1", "main.2.2-2", "main.3.1-2"),
        "main.2": ("main.1.1-2", "main.2.1-1", "main.2.2-1", "main.3.2-2"),
        "main.3": ("main.1.2-2", "main.2.1-2", "main.3.1-1", "main.3.2-1"),
        "main-1": ("main-1",),
        "main-2": ("main-2",),
    }
    assert deployment.hosted_by("east") == ("main.2", "main-2")
    assert len(deployment.fragments["main"].merges) == 6
    assert deployment.drivers_beside("main.1") == 1
    write_plan(deployment, plan_with(Routes({"load": ("k",)})))
    plan = read_plan(deployment)
    slots = [plan.fragments[name].shard for name in deployment.fragments["main"].merges]
    ends = [one.slots for one in slots if one is not None]
    assert (ends[0][0], ends[-1][1]) == (0, SLOTS)
    assert [end for _, end in ends[:-1]] == [first for first, _ in ends[1:]]
    second = slots[1]
    assert second is not None
    assert (second.serves("out"), second.heirs(1)) == ("out.1.2", ("main.3",))
    settings = Topology(deployment, plan).replica("main.1.2-1")
    told = shard_status(second, settings, 1)["shard"]
    assert (told["part"], told["parts"], told["heirs"]) == (2, 2, ["main.3"])
    assert told["beside"] == ["main.3", "main.2"]
    # Another way to divide it is another plan.
    assert not is_planned(written(tmp_path, ring.replace("spread", "next"), SERVERS))


def test_one_shard_that_does_everything_has_no_parts(tmp_path: Path) -> None:
    ring = 'shards = 3\nprotection = "hybrid"\nheirs = "spread"\nrouting = "primary"'
    with pytest.raises(DeploymentError, match="one shard does everything, in one piece"):
        write_plan(written(tmp_path, ring), plan_with(Routes({"load": ("k",)})))


@pytest.mark.parametrize(
    ("fragment", "message"),
    [
        (
            'shards = 3\nprotection = "hybrid"\nheirs = "any"',
            "is one of next, least-loaded, spread; got 'any'",
        ),
        ('shards = 3\nprotection = "hybrid"\nheirs = "least-loaded"', "write copies = 2 or more"),
        ('shards = 3\nprotection = "hybrid"\ncopies = 3', "from 1 to 2, as there are 3 shards"),
        ('shards = 3\nprotection = "active"\ncopies = 1', "passive or hybrid, not active"),
        ("copies = 2", "give shards, too"),
        ('shards = 2\nheirs = "next"', "with protection passive or hybrid, not none; leave it out"),
        ('heirs = "next"', "main.heirs: it divides tuples among shards; give shards, too"),
        ('shards = 342\nprotection = "passive"\nheirs = "spread"', "1024 slots; got 1026"),
        ("shards = 0", "fragments.main.shards: from 1 to 1024, as many as there are slots; got 0"),
        ("shards = 5000", "got 5000"),
        ("shards = true", 'a number, "auto", or a list of places, one for each; got True'),
        ('shards = 2\nrouting = "hash"', "routing: it is one of key, random, primary; got 'hash'"),
        ('routing = "key"', "main.routing: it divides tuples among shards; give shards, too"),
        ('shards = 2\ncolocate = "one"', "the ring says where replicas run"),
        ('shards = 2\nreplicas = ["10.0.0.1"]', "the ring says where replicas run"),
        ('shards = ["10.0.0.1:80"]', "leave the ports away"),
        ('shards = 2\n[fragments."main.2"]', "a shard would be called 'main.2', too; rename one"),
        (
            'delivery = "twice"',
            "at-least-once, exactly-once; got 'twice'",
        ),
        (
            'delivery = "at-most-once"\nreplicas = 2',
            "goes with protection none or passive, because",
        ),
        ('delivery = "at-least-once"\nprotection = "hybrid"', "none or passive, because"),
        ('delivery = "at-least-once"\ncheckpoint = "continuous"', "leave checkpoint away"),
        ("shards = 2\nrescaled = 3", "'rescaled' means nothing here"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, fragment: str, message: str) -> None:
    with pytest.raises(DeploymentError) as caught:
        written(tmp_path, fragment)
    assert message in str(caught.value)


# -- what becomes of the plan ---------------------------------------------------------------


def plan_with(routes: Routes) -> Plan:
    schema = pa.schema([STIME, TMAX, SEQ, pa.field("k", pa.string())])
    output = FragmentStream("out", schema, frozenset(["load"]))
    main = FragmentPlan("main", {"load": schema}, (output,), False, ("by hand",), routes)
    return Plan(200_000, {"load": SourcePlan(schema, None, ())}, {"main": main}, ("out",))


def test_the_plan_has_the_shards_and_what_merges_them(tmp_path: Path) -> None:
    deployment = written(tmp_path, "shards = 2")
    write_plan(deployment, plan_with(Routes({"load": ("k",)})))
    plan = read_plan(deployment)
    topology = Topology(deployment, plan)
    first, second, merging = (plan.fragments[name] for name in ("main.1", "main.2", "main"))
    assert first.shard is not None
    assert second.shard is not None
    assert first.shard.routing is Routing.KEY
    assert first.shard.share.parts == {"load": Part(0, SLOTS // 2, ("k",))}
    assert second.shard.share.parts == {"load": Part(SLOTS // 2, SLOTS, ("k",))}
    assert first.identity != second.identity
    assert merging.merges == {"out": ("out.1", "out.2")}
    assert topology.consumers["load"] == ("main.1-1", "main.2-1")
    (read,) = topology.replica("main.2-1").inputs
    assert read.part == Part(SLOTS // 2, SLOTS, ("k",))
    assert topology.consumers["out.2"] == ("main-1",)
    assert topology.producers["out"] == ("main-1",)
    assert topology.shaped_by["out"] == ("out.1", "out.2")
    # Another number of shards is another plan; nobody goes on from this one.
    assert not is_planned(written(tmp_path, "shards = 3"))
    with pytest.raises(DeploymentError, match="no such fragment"):
        Topology(written(tmp_path, "shards = 3"), plan)


def test_what_is_delivered_at_most_once_is_so_to_the_end(tmp_path: Path) -> None:
    plan = plan_with(Routes({"load": ("k",)}))
    deployment = written(tmp_path, 'shards = 2\ndelivery = "at-most-once"')
    topology = Topology(deployment, plan)
    (read,) = topology.replica("main.1-1").inputs
    assert not read.lossy
    for process in ("main.1-1", "main-1"):
        assert topology.replica(process).delivery is Delivery.AT_MOST_ONCE
    assert all(one.lossy for one in topology.replica("main-1").inputs)
    assert topology.lossy == {"out.1", "out.2", "out"}
    merging = replace(deployment.fragments["main"], delivery=Delivery.EXACTLY_ONCE)
    wrong = replace(deployment, fragments={**deployment.fragments, "main": merging})
    with pytest.raises(DeploymentError, match=r"main\.delivery: it reads what main\.1 delivers"):
        Topology(wrong, plan)


@pytest.mark.parametrize(
    ("routing", "routes", "message"),
    [
        ("", Routes({}, "it has no key"), "it cannot be divided by key: it has no key"),
        ('routing = "random"', Routes({"load": ("k",)}), "random is for fragments without state"),
        ('routing = "key"', Routes({}), "no operator of it has a key; write random"),
    ],
)
def test_routings_that_cannot_be_are_refused(
    tmp_path: Path, routing: str, routes: Routes, message: str
) -> None:
    deployment = written(tmp_path, f"shards = 2\n{routing}")
    with pytest.raises(DeploymentError, match=f"fragments.main.routing: {message}"):
        Topology(deployment, plan_with(routes))


def test_one_shard_may_do_the_work_of_any_fragment(tmp_path: Path) -> None:
    deployment = written(tmp_path, 'shards = 3\nrouting = "primary"')
    write_plan(deployment, plan_with(Routes({}, "it has no key")))
    plan = read_plan(deployment)
    owned = [plan.fragments[f"main.{number}"].shard for number in (1, 2, 3)]
    parts = [each.share.parts["load"] for each in owned if each is not None]
    assert [(each.first, each.end) for each in parts] == [
        (0, SLOTS),
        (SLOTS, SLOTS),
        (SLOTS, SLOTS),
    ]


def test_state_of_another_number_of_shards_is_not_gone_on_with(tmp_path: Path) -> None:
    plan = plan_with(Routes({"load": ("k",)}))
    before = written(tmp_path, "shards = 2")
    write_plan(before, plan)
    kept = before.data / "processes" / "main.1-1" / "state" / "manifest"
    kept.parent.mkdir(parents=True)
    kept.write_text("something")
    going_on(before, deployed(before, plan), lambda gained: plan)
    after = written(tmp_path, "shards = 4")
    with pytest.raises(StateError, match=r"shard 1 of 2: slots 0 to 512(.|\n)*shard 1 of 4"):
        going_on(after, deployed(after, plan), lambda gained: plan)


def test_shards_of_a_later_generation_go_on_with_what_they_have(tmp_path: Path) -> None:
    plan = plan_with(Routes({"load": ("k",)}))
    before = written(tmp_path, "shards = 2")
    write_plan(before, plan)
    about = {"given": 2, "generations": [[1, 2], [2, 3]]}
    taking = [(f"main.g2.{new}-1", f"main.{old}-1") for new in (1, 2, 3) for old in (1, 2)]
    change_membership(
        before,
        lambda known: known.with_shards(taking, [("main-2", "main-1")]),
        shards={"main": about},
    )
    both = load_deployment(before.path)
    topology = Topology(both, read_plan(both))
    new = [f"main.g2.{number}-1" for number in (1, 2, 3)]
    assert topology.consumers["load"] == ("main.1-1", "main.2-1", *new)
    assert topology.producers["out"] == ("main-1", "main-2")
    assert [one.stream for one in topology.replica("main-1").inputs] == ["out.1", "out.2"]
    merging = topology.replica("main-2")
    assert [one.stream for one in merging.inputs] == ["out.g2.1", "out.g2.2", "out.g2.3"]
    assert (merging.predecessors, merging.begins_empty) == ((("main-1",),), False)
    # The second of three has slots of both old ones, the first only of the first.
    assert topology.replica(new[0]).predecessors == (("main.1-1",),)
    assert topology.replica(new[1]).predecessors == (("main.1-1",), ("main.2-1",))
    assert topology.fragment_plan(new[1]).identity != topology.fragment_plan("main.2-1").identity
    about = {"given": 2, "generations": [[2, 3]]}
    gone = ["main.1-1", "main.2-1", "main-1"]
    change_membership(before, lambda known: known.without(*gone), shards={"main": about})
    after = load_deployment(before.path)
    assert list(after.processes) == ["entry-load", *new, "main-2"]
    topology = Topology(after, read_plan(after))
    assert topology.replica(new[0]).predecessors == ()
    assert not topology.replica(new[0]).begins_empty
    # Starting again plans it as it is now, and finds the same.
    going_on(after, deployed(after, plan), lambda gained: plan)
    with pytest.raises(DeploymentError, match="it has 3 since it was rescaled, and had 2 before"):
        written(tmp_path, "shards = 5")
    assert len(written(tmp_path, "shards = 3").fragments["main"].merges) == 3


# -- real nodes -----------------------------------------------------------------------------

ALONE = f"""
{COMMON}
[fragments.main]
shards = 2
[fragments.best]
"""
RING = f"""
{COMMON}
[fragments.main]
shards = 2
protection = "hybrid"
[fragments.main.standby]
promote_after = "1500 ms"
[fragments.best]
"""
NODES = ("main.1-1", "main.1-2", "main.2-1", "main.2-2", "main-1", "main-2", "best-1")


@pytest.fixture
def worlds(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., World]]:
    made = []

    def make(deployment: str, *names: str) -> World:
        made.append(World(spark, tmp_path, deployment, names))
        made[0].read(lambda: made[0].view.stable is not None)
        return made[0]

    try:
        yield make
    finally:
        for each in made:
            each.close()


@pytest.mark.thorough
def test_a_shard_that_is_lost_is_missing_by_name_until_it_is_back(
    worlds: Callable[..., World],
) -> None:
    world = worlds(ALONE, "main.1-1", "main.2-1", "main-1", "best-1")
    shown = world.copies["main.2-1"].status()["shard"]
    assert (shown["of"], shown["number"], shown["slots"]) == ("main", 2, [SLOTS // 2, SLOTS])
    assert shown["routing"] == {"load": ["k"]}
    assert shown["above"] == {"load": ["entry-load"]}
    assert shown["beside"] == ["main.1", "main.1"]
    assert shown["below"] == {"main.aggregate_1.2": ["main-1"]}
    world.stop("main.1-1")
    # What the other one has is there, tentatively.
    world.read(lambda: world.view.why is not None)
    assert world.view.why is not None
    assert [each.stream for each in world.view.why.missing] == ["main.aggregate_1.1"]
    world.start("main.1-1")
    world.go_on()
    # What merges has no state, and goes on where it was.
    world.stop("main-1")
    world.start("main-1")
    world.go_on()
    world.finish()


def delivered(kind: str) -> str:
    delivery = f'delivery = "{kind}"'
    return f"{COMMON}[fragments.main]\nshards = 2\n{delivery}\n[fragments.best]\n{delivery}\n"


@pytest.mark.thorough
def test_at_least_once_loses_nothing_without_a_log_of_results(
    worlds: Callable[..., World],
) -> None:
    world = worlds(delivered("at-least-once"), "main.1-1", "main.2-1", "main-1", "best-1")
    world.stop("main.1-1", "main-1")
    world.start("main.1-1", "main-1")
    world.go_on()
    world.stop("best-1")
    world.start("best-1")
    world.go_on()
    logs = (world.deployment.data / "processes").glob("[mb]*/streams/**/*.seg")
    assert sum(each.stat().st_size for each in logs) < 10_000
    world.finish()


def test_at_most_once_keeps_nothing_and_doubles_nothing(worlds: Callable[..., World]) -> None:
    world = worlds(delivered("at-most-once"), "main.1-1", "main.2-1", "main-1", "best-1")
    for names in (("main.1-1",), ("main.2-1", "main-1"), ("best-1",)):
        world.stop(*names)
        world.start(*names)
        world.go_on()
    assert not list((world.deployment.data / "processes").glob("[mb]*/state/manifest.json"))
    found = world.view.stable
    assert found is not None
    stimes = found["stime"].cast(pa.int64()).to_pylist()
    # One window every two seconds, none twice.
    assert stimes == sorted(set(stimes))


def test_at_most_once_another_copy_goes_on_from_now(worlds: Callable[..., World]) -> None:
    passive = delivered("at-most-once").replace("shards = 2", 'protection = "passive"')
    world = worlds(passive, "main-1", "main-2", "best-1")
    world.read(world.is_in("main-2", "suspended"))
    world.stop("main-1")
    world.read(world.is_in("main-2", "primary"))
    world.go_on()
    assert world.copies["main-2"].status()["checkpoints"]["taken"] == 0
    found = world.view.stable
    assert found is not None
    stimes = found["stime"].cast(pa.int64()).to_pylist()
    assert stimes == sorted(set(stimes))


def rescaling(world: World, shards: int) -> Rescaled:
    """Another number of shards, with the test in the place of the supervisor."""
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(rescale, world.deployment.path, "main", shards, wait_s=600.0)
        while not under_way.done():
            world.deployment = load_deployment(world.deployment.path)
            missing = [
                name
                for name in world.deployment.endpoints
                if name.startswith("main") and name not in world.copies
            ]
            world.start(*missing)
            ended = [name for name in world.copies if name not in world.deployment.endpoints]
            world.stop(*ended)
            event = world.client.read(0.05)
            if event is not None:
                world.view.apply(event)
        # Those that took part no longer have said so, which ends a process.
        world.failures[:] = [one for one in world.failures if not isinstance(one, Removed)]
        return under_way.result()


@pytest.mark.thorough
def test_another_number_of_shards_takes_over_and_nobody_notices(
    worlds: Callable[..., World],
) -> None:
    world = worlds(ALONE, "main.1-1", "main.2-1", "main-1", "best-1")
    with pytest.raises(MembershipError, match="main has 2 shards already"):
        rescale(world.deployment.path, "main", 2)
    with pytest.raises(MembershipError, match="'best' is no fragment with shards"):
        rescale(world.deployment.path, "best", 2)
    for shards, generation in ((1, 2), (2, 3)):
        done = rescaling(world, shards)
        assert (done.shards, done.generation, done.unaware) == (shards, generation, ())
        names = [f"main.g{generation}.{number}-1" for number in range(1, shards + 1)]
        assert set(world.copies) == {*names, f"main-{generation}", "best-1"}
        world.go_on()
    # It starts again as it is, whatever the file said first.
    world.stop(*list(world.copies))
    world.start("main.g3.1-1", "main.g3.2-1", "main-3", "best-1")
    world.go_on()
    assert world.copies["main.g3.2-1"].status()["shard"]["slots"] == [SLOTS // 2, SLOTS]
    world.finish()


@pytest.mark.thorough
def test_a_ring_of_shards_loses_each_and_shows_no_trace(worlds: Callable[..., World]) -> None:
    ring = worlds(RING, *NODES)

    def settle() -> None:
        """Every shard does its own work; on a busy machine its neighbour may have done it."""
        for shard in ("main.1", "main.2"):
            ring.read(ring.is_in(f"{shard}-1", "primary"))
            ring.read(ring.is_protected(f"{shard}-2"))

    settle()
    # The process of the first shard, with the copy of the second: its neighbour does both.
    ring.stop("main.1-1", "main.2-2")
    ring.read(ring.is_in("main.1-2", "primary"))
    ring.go_on()
    ring.start("main.1-1", "main.2-2")
    # It takes its work back.
    settle()
    # One of those that merge, then the neighbour that did the work of two.
    ring.stop("main-1")
    ring.go_on()
    ring.start("main-1")
    ring.stop("main.1-2", "main.2-1")
    ring.read(ring.is_in("main.2-2", "primary"))
    ring.go_on()
    # All of them at once, and back from their disks.
    ring.stop("main.1-1", "main.2-2", "main-1", "main-2")
    ring.start("main.1-1", "main.1-2", "main.2-1", "main.2-2", "main-1", "main-2")
    ring.go_on()
    ring.finish()


def _running(deployment: Deployment) -> set[str]:
    """The copies of shards that run, as they say themselves."""
    names = [name for name in deployment.endpoints if name.startswith("main.")]
    told = node_status(deployment, names)
    return {name for name, status in told.items() if status.get("awake")}


def _await(holds: Callable[[], bool], seconds: float, story: Callable[[], object]) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, story()
        time.sleep(0.05)


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("ring", "lost", "heirs"),
    [
        # Each part of a lost shard goes on at another survivor.
        ('heirs = "spread"', ["main.1"], [{"main.1.1-2", "main.1.2-2"}]),
        # Of three shards two are lost at once, and the third does the work of all.
        ("copies = 2", ["main.1", "main.2"], [{"main.1-3", "main.2-2"}]),
        # Either of those that hold its state, by what they had to do.
        ('copies = 2\nheirs = "least-loaded"', ["main.1"], [{"main.1-2"}, {"main.1-3"}]),
    ],
)
def test_processes_of_a_ring_are_killed_and_their_heirs_do_the_work(
    tmp_path: Path, spark: SparkSession, ring: str, lost: list[str], heirs: list[set[str]]
) -> None:
    (tmp_path / "network.py").write_text(NETWORK.partition("best = ")[0] + 'sums.output("sums")')
    shards = f'shards = 3\nprotection = "hybrid"\n{ring}'
    (tmp_path / "deployment.toml").write_text(KILLED.replace("shards = 2", shards))
    deployment = load_deployment(tmp_path / "deployment.toml")
    found = deployment.data / "sums.jsonl"
    homes = {name for name in deployment.endpoints if name.startswith("main.") and name[-1] == "1"}
    with supervised(deployment) as supervisor:
        load = Load(deployment, "load", _readings)

        def story() -> object:
            return node_status(deployment, list(deployment.endpoints))

        def settled() -> bool:
            return _running(deployment) == homes

        wait_for_lines(supervisor, found, 100, 120.0)
        _await(settled, 120.0, story)
        for name in lost:
            assert supervisor.kill(name)
        # Before whoever was lost is back.
        _await(lambda: any(some <= _running(deployment) for some in heirs), 30.0, story)
        _await(settled, 120.0, story)
        kills = {"main.1": 1, "main.2": 1, "main.3": 1, "main-1": 2}
        Killer(supervisor, seed=5).kill(kills, (0.2, 1.5))
        load.stop()
        network = load_network(deployment.network, "local[2]", {})
        expected = expected_file(network, deployment, "sums")
        wait_for_lines(supervisor, found, expected.count("\n"), 240.0)
    assert found.read_text() == expected


KILLED = """
network = "network.py"
[timing]
delay = "3 seconds"
[sources.load]
keep = true
[fragments.main]
shards = 2
[clients.recorder]
output = "sums"
sink = "jsonl:data/sums.jsonl"
"""


def _readings(first: int, count: int) -> pa.Table:
    random = np.random.default_rng(first)
    return pa.table({"k": random.integers(0, 50, count), "v": random.random(count)})


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_kills_of_shards_and_of_what_merges_them_leave_no_trace(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "network.py").write_text(NETWORK.partition("best = ")[0] + 'sums.output("sums")')
    (tmp_path / "deployment.toml").write_text(KILLED)
    deployment = load_deployment(tmp_path / "deployment.toml")
    kills = {"main.1-1": 2, "main.2-1": 2, "main-1": 4, "entry-load": 2, "recorder": 2}
    found = deployment.data / "sums.jsonl"
    with supervised(deployment) as supervisor:
        load = Load(deployment, "load", _readings)
        wait_for_lines(supervisor, found, 100, 120.0)
        Killer(supervisor, seed=3).kill(kills, (0.2, 1.5))
        load.stop()
        network = load_network(deployment.network, "local[2]", {})
        expected = expected_file(network, deployment, "sums")
        wait_for_lines(supervisor, found, expected.count("\n"), 240.0)
    assert found.read_text() == expected
    assert expected.count("\n") > 200


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_shards_are_rescaled_while_processes_are_killed(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "network.py").write_text(NETWORK.partition("best = ")[0] + 'sums.output("sums")')
    (tmp_path / "deployment.toml").write_text(KILLED)
    deployment = load_deployment(tmp_path / "deployment.toml")
    found = deployment.data / "sums.jsonl"
    with supervised(deployment) as supervisor, ThreadPoolExecutor(1) as pool:
        load = Load(deployment, "load", _readings)
        wait_for_lines(supervisor, found, 100, 120.0)
        under_way = pool.submit(rescale, deployment.path, "main", 3, wait_s=240.0)
        Killer(supervisor, seed=4).kill({"main.1-1": 1, "main-1": 1, "entry-load": 1}, (0.2, 1.5))
        assert under_way.result(300.0).shards == 3
        assert set(supervisor.deployment.processes) >= {"main.g2.3-1", "main-2"}
        load.stop()
        network = load_network(deployment.network, "local[2]", {})
        expected = expected_file(network, deployment, "sums")
        wait_for_lines(supervisor, found, expected.count("\n"), 240.0)
    assert found.read_text() == expected
