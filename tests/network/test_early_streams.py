"""Which streams of a deployment have early results, and who reads them early."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from holdfast.core.provenance import Trail
from holdfast.core.settings import Timing
from holdfast.deployment import Deployment, Endpoint, FragmentSpec, SourceSpec
from holdfast.plans.fragment_plans import FragmentPlan, FragmentStream
from holdfast.plans.plan import Plan, SourcePlan
from holdfast.plans.topology import Topology

NOTHING = pa.schema([])
LEFT, RIGHT = Trail(1, 0), Trail(1, 1)


def fragment(name: str, *ways: tuple[str, Trail], also: tuple[str, ...] = ()) -> FragmentPlan:
    """One with an output that needs no more than one tuple, and one that needs windows."""
    inputs = (*(stream for stream, _ in ways), *also)
    outputs = (
        FragmentStream(f"{name}.out", NOTHING, frozenset(stream for stream, _ in ways), ways),
        FragmentStream(f"{name}.windows", NOTHING, frozenset(inputs)),
    )
    return FragmentPlan(name, dict.fromkeys(inputs, NOTHING), outputs, False, ())


# x and y ─▶ a ─▶ b, which unites a's stream with itself, and c, which also reads windows of a
PLAN = Plan(
    200_000,
    {name: SourcePlan(NOTHING, None, ()) for name in ("x", "y")},
    {
        "a": fragment("a", ("x", LEFT), ("y", RIGHT)),
        "b": fragment("b", ("a.out", LEFT), ("a.out", RIGHT), also=("x",)),
        "c": fragment("c", ("a.windows", LEFT), ("a.out", RIGHT)),
    },
    ("b.out", "c.out"),
)


def topology(*active: str) -> Topology:
    two = (Endpoint(), Endpoint())
    return Topology(
        Deployment(
            name="small",
            path=Path("deployment.toml"),
            network=Path("network.py"),
            data=Path("data"),
            timing=Timing(bucket_us=1, delay_us=3_000_000),
            sources={name: SourceSpec(name, Endpoint()) for name in PLAN.sources},
            fragments={
                name: FragmentSpec(name, two, race=name not in active) for name in PLAN.fragments
            },
            clients={},
        ),
        PLAN,
    )


def test_streams_between_which_and_the_sources_all_race_and_nothing_needs_more() -> None:
    found = topology()
    assert found.early == {"a.out", "b.out"}
    first, second, third = (found.replica(f"{name}-1") for name in "abc")
    assert not any(one.early for one in (*first.inputs, *third.inputs))
    assert [one.ways for one in first.outputs] == [(("x", LEFT), ("y", RIGHT)), ()]
    assert [one.ways for one in third.outputs] == [(), ()]
    (read,) = [one for one in second.inputs if one.early]
    assert read.stream == "a.out"
    assert read.trails == (LEFT, RIGHT)
    assert not any(one.early for one in second.inputs if one.stream == "x")


def test_behind_a_fragment_that_does_not_race_nothing_is_early() -> None:
    assert topology("a").early == set()
    found = topology("b")
    assert found.early == {"a.out"}
    assert not any(one.early for one in found.replica("b-1").inputs)
