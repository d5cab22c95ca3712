"""Which streams of a deployment have early results, and who reads them early."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from holdfast.core.provenance import TIMED, Trail
from holdfast.core.settings import Timing
from holdfast.deployment import Deployment, Endpoint, FragmentSpec, SourceSpec
from holdfast.plans.fragment_plans import FragmentPlan, FragmentStream
from holdfast.plans.plan import Plan, SourcePlan
from holdfast.plans.topology import Topology

NOTHING = pa.schema([])
LEFT, RIGHT = Trail(1, 0), Trail(1, 1)


def fragment(name: str, *ways: tuple[str, Trail], also: tuple[str, ...] = ()) -> FragmentPlan:
    """One with an output that needs no more than one tuple, windows of its first input, and
    something that rests on all of them."""
    inputs = (*(stream for stream, _ in ways), *also)
    rests_on, every = frozenset(inputs[:1]), frozenset(inputs)
    outputs = (
        FragmentStream(f"{name}.out", NOTHING, frozenset(stream for stream, _ in ways), ways),
        FragmentStream(f"{name}.windows", NOTHING, rests_on, memory=((TIMED, rests_on),)),
        FragmentStream(f"{name}.all", NOTHING, every, memory=((TIMED, every),)),
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


def topology(*active: str, plan: Plan = PLAN) -> Topology:
    two = (Endpoint(), Endpoint())
    return Topology(
        Deployment(
            name="small",
            path=Path("deployment.toml"),
            network=Path("network.py"),
            data=Path("data"),
            timing=Timing(bucket_us=1, delay_us=3_000_000),
            sources={name: SourceSpec(name, Endpoint()) for name in plan.sources},
            fragments={
                name: FragmentSpec(name, two, race=name not in active) for name in plan.fragments
            },
            clients={},
        ),
        plan,
    )


def test_streams_of_which_something_is_known_before_all_inputs_have_come_as_far() -> None:
    found = topology()
    windows = {f"{name}.windows" for name in "abc"}
    assert found.early == {"a.out", "b.out", "c.out", *windows}
    first, second, third = (found.replica(f"{name}-1") for name in "abc")
    assert not any(one.early for one in first.inputs)
    assert [one.ways for one in first.outputs] == [(("x", LEFT), ("y", RIGHT)), (), ()]
    assert [one.memory for one in first.outputs] == [(), ((TIMED, frozenset("x")),), ()]
    (read,) = [one for one in second.inputs if one.early]
    assert read.stream == "a.out"
    assert read.trails == (LEFT, RIGHT)
    assert not any(one.early for one in second.inputs if one.stream == "x")
    # What windows give is known by its times, and handed on as the rest is.
    assert {one.stream: one.trails for one in third.inputs if one.early} == {
        "a.windows": (TIMED,),
        "a.out": (LEFT, RIGHT),
    }


def test_what_comes_from_a_fragment_that_does_not_race_is_known_by_its_times() -> None:
    found = topology("a")
    assert found.early == {"b.out", "c.out", "b.windows", "c.windows"}
    third = found.replica("c-1")
    assert not any(one.early for one in third.inputs)
    assert [one.trails for one in third.inputs] == [(TIMED,), (TIMED,)]
    found = topology("b")
    assert not any(one.early for one in found.replica("b-1").inputs)
    assert found.early == {"a.out", "c.out", "a.windows", "c.windows"}


def test_what_rests_on_the_only_input_is_as_early_in_order() -> None:
    plan = replace(PLAN, fragments={"a": fragment("a", ("x", Trail()))}, outputs=("a.out",))
    assert topology(plan=replace(plan, sources={"x": PLAN.sources["x"]})).early == {"a.out"}


def test_a_join_is_early_though_it_rests_on_all_inputs_and_asks_for_early_halves() -> None:
    sides = frozenset(["a.out", "a.windows", "x"])
    pairs = FragmentStream("d.pairs", NOTHING, sides, (), ((TIMED, sides),), frozenset([TIMED]))
    join = FragmentPlan("d", dict.fromkeys(sorted(sides), NOTHING), (pairs,), False, ())
    found = topology(plan=replace(PLAN, fragments={**PLAN.fragments, "d": join}))
    assert "d.pairs" in found.early
    settings = found.replica("d-1")
    assert settings.outputs[0].pairs == {TIMED}
    assert {one.stream for one in settings.inputs if one.early} == {"a.out", "a.windows"}
    assert not any(one.trails for one in settings.inputs), "nothing is handed on"
