"""Fragments with shards: what a deployment file makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.cluster.changed import going_on
from holdfast.cluster.rescaling import rescale
from holdfast.core.copy_view import Neighbours
from holdfast.core.messages import Part
from holdfast.core.provenance import Trail
from holdfast.core.settings import Delivery, Protection, Reconcile
from holdfast.deployment import Deployment, DeploymentError, Generation, load_deployment
from holdfast.errors import StateError
from holdfast.frames import SEQ, STIME, TMAX
from holdfast.nodes.replica_status import shard_status
from holdfast.plans.addresses import Addresses
from holdfast.plans.fragment_plans import DescribedOperator, FragmentPlan, FragmentStream, Routes
from holdfast.plans.membership_file import change_membership
from holdfast.plans.plan import (
    OperatorPlan,
    Plan,
    SourcePlan,
    deployed,
    is_planned,
    plan_path,
    read_plan,
    write_plan,
)
from holdfast.plans.topology import Topology
from holdfast.slots import SLOTS, Routing

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


@pytest.mark.parametrize("protection", ["passive", "hybrid"])
def test_a_shard_alone_has_its_copy_in_a_process_of_its_own(
    tmp_path: Path, protection: str
) -> None:
    deployment = written(tmp_path, f'shards = 1\nprotection = "{protection}"')
    shard = {name: names for name, names in deployment.processes.items() if "main.1" in name}
    assert shard == {"main.1-1": ("main.1-1",), "main.1-2": ("main.1-2",)}
    spec = deployment.fragments["main.1"]
    assert spec.standby is not None
    assert spec.standby.copies == ("main.1-1", "main.1-2")


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


def test_fragments_share_processes_shard_by_shard(tmp_path: Path) -> None:
    more = '[fragments.more]\nshards = 3\nprotection = "hybrid"\ncolocate = "pool"\n'
    deployment = written(tmp_path, 'shards = 2\ncolocate = "pool"', more)
    assert deployment.processes == {
        "entry-load": ("entry-load",),
        "pool.1": ("more.1-1", "more.3-2", "main.1-1"),
        "pool.2": ("more.1-2", "more.2-1", "main.2-1"),
        "pool.3": ("more.2-2", "more.3-1"),
        "more-1": ("more-1",),
        "more-2": ("more-2",),
        "main-1": ("main-1",),
    }
    assert deployment.drivers_beside("pool.1") == 3


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
    topology = Topology(deployment, plan)
    shard = topology.fragment_plan("main.4-1").shard
    settings = topology.replica("main.4-1")
    assert shard_status(shard, Neighbours.of(settings, {}))["shard"]["heirs"] == [
        "main.1",
        "main.2",
    ]


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
    topology = Topology(deployment, plan)
    second = topology.fragment_plan("main.1.2-2").shard
    assert second is not None
    assert (second.serves("out"), second.heirs) == ("out.1.2", ("main.3",))
    settings = topology.replica("main.1.2-1")
    told = shard_status(second, Neighbours.of(settings, {}))["shard"]
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
        (
            'shards = "auto"\nrouting = "primary"',
            "main.shards: \"auto\" is not for routing = 'primary': one shard does everything",
        ),
        ("shards = 0", "fragments.main.shards: from 1 to 1024, as many as there are slots; got 0"),
        ("shards = 5000", "got 5000"),
        ("shards = true", 'a number, "auto", or a list of places, one for each; got True'),
        ('shards = 2\nrouting = "hash"', "routing: it is one of key, random, primary; got 'hash'"),
        ('routing = "key"', "main.routing: it divides tuples among shards; give shards, too"),
        ('shards = 2\ncolocate = ["one"]', "the ring says where replicas run"),
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


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    deployment = written(tmp_path, "shards = 2")
    plan = plan_with(Routes({"load": ("k",)}))
    deployed_plan = deployed(deployment, plan)
    whole = deployed_plan.fragments["main"]
    early = replace(
        whole.outputs[0],
        ways=(("out.1", Trail(2, 1)),),
        memory=((Trail(3, 2, timed=True), frozenset(["out.1", "out.2"])),),
        pairs=frozenset([Trail(3, 2, timed=True), Trail(1, 0, timed=True)]),
    )
    read = DescribedOperator("filter_1", ("load",), "", ("Filter",))
    fragments = {
        **deployed_plan.fragments,
        "main": replace(whole, outputs=(early,), earlier=("abc",), operators=(read,)),
    }
    source = SourcePlan(plan.sources["load"].schema, "at", ("k",), "it says why")
    shown = OperatorPlan("sum_1", "sum", "stateful", "main", ("load",), "n int", "depends", (5, 5))
    full = replace(
        deployed_plan,
        sources={"load": source},
        fragments=fragments,
        operators=(shown,),
        output_operators={"out": "sum_1"},
    )
    write_plan(deployment, full)
    assert is_planned(deployment)
    assert read_plan(deployment) == full
    text = plan_path(deployment).read_text()
    write_plan(deployment, read_plan(deployment))
    assert plan_path(deployment).read_text() == text


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
    # All the same each of them may go on from what the other computed, and so may what merges.
    assert topology.replica(new[1]).query == topology.replica("main.2-1").query != ""
    assert topology.replica("main-1").query == merging.query != topology.replica(new[1]).query
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


def test_a_new_shard_takes_over_from_those_that_have_its_slots(tmp_path: Path) -> None:
    """However many there are, it is a few: what rescaling says does not grow as their square."""
    before = written(tmp_path, "shards = 4")
    write_plan(before, plan_with(Routes({"load": ("k",)})))
    about = {"given": 4, "generations": [[1, 4], [2, 6]]}
    change_membership(
        before,
        lambda known: known.with_shards([], [("main-2", "main-1")]),
        shards={"main": about},
    )
    both = load_deployment(before.path)
    topology = Topology(both, read_plan(both))
    old, new = (one.names for one in both.fragments["main"].generations)
    assert {name: topology.taken_from(name, old) for name in new} == {
        "main.g2.1": ("main.1",),
        "main.g2.2": ("main.1", "main.2"),
        "main.g2.3": ("main.2",),
        "main.g2.4": ("main.3",),
        "main.g2.5": ("main.3", "main.4"),
        "main.g2.6": ("main.4",),
    }


def test_a_ring_in_parts_gets_another_number_of_shards(tmp_path: Path) -> None:
    ring = 'shards = 2\nprotection = "hybrid"\nheirs = "spread"'
    before = written(tmp_path, ring)
    write_plan(before, plan_with(Routes({"load": ("k",)})))
    merging = [("main-3", "main-1"), ("main-4", "main-2")]
    change_membership(
        before,
        lambda known: known.with_shards([], merging),
        shards={"main": {"given": 2, "generations": [[1, 2], [2, 3]]}},
    )
    both = load_deployment(before.path)
    topology = Topology(both, read_plan(both))
    old, new = (one.names for one in both.fragments["main"].generations)
    assert old == ("main.1", "main.2")
    assert new == tuple(f"main.g2.{shard}.{part}" for shard in (1, 2, 3) for part in (1, 2))
    slots = [topology.fragment_plan(f"{name}-1").shard for name in new]
    assert [one.slots for one in slots if one] == [
        (at * SLOTS // 6, (at + 1) * SLOTS // 6) for at in range(6)
    ]
    # One copy takes over from whichever copy of the old shard runs; the other one joins it.
    first, second = (topology.replica(f"main.g2.1.1-{copy}") for copy in (1, 2))
    assert first.predecessors == (("main.1-1", "main.1-2"),)
    assert (second.predecessors, first.begins_empty, second.begins_empty) == ((), False, False)
    # The processes of the new ring are its own: the old ones end with the old shards.
    hosts = {name: nodes for name, nodes in both.processes.items() if ".g2." in name}
    assert {name: len(nodes) for name, nodes in hosts.items()} == dict.fromkeys(
        (f"main.g2.{shard}" for shard in (1, 2, 3)), 4
    )


def addressed(before: Deployment) -> Deployment:
    """The same on this machine, as if it had been started once."""
    path = before.path
    path.write_text(path.read_text().replace('listen = "10.0.0.1"', ""))
    found = load_deployment(path)
    Addresses.choose(found)
    return found


def test_a_ring_has_no_fewer_shards_than_its_copies_need(tmp_path: Path) -> None:
    before = addressed(written(tmp_path, 'shards = 3\nprotection = "passive"\ncopies = 2'))
    write_plan(before, plan_with(Routes({"load": ("k",)})))
    with pytest.raises(DeploymentError, match="that needs 3 shards or more; got 2"):
        rescale(before.path, "main", 2)
    assert load_deployment(before.path).fragments["main"].generations == (
        Generation(1, 3, ("main.1", "main.2", "main.3")),
    )


def test_new_shards_have_processes_of_their_own_where_the_old_ones_share(tmp_path: Path) -> None:
    shared = (
        'shards = 2\nprotection = "hybrid"\ncolocate = "drivers"\n'
        '[fragments.other]\nshards = 2\ncolocate = "drivers"'
    )
    before = written(tmp_path, shared)
    about = {"given": 2, "generations": [[1, 2], [2, 3]]}
    change_membership(before, lambda known: known, shards={"main": about})
    processes = load_deployment(before.path).processes
    assert processes["drivers.1"] == ("main.1-1", "main.2-2", "other.1-1")
    assert processes["main.g2.1"] == ("main.g2.1-1", "main.g2.3-2")
