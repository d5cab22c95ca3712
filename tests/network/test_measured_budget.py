"""X divided by what jobs need: who is slow has more of it, and no path takes longer than X."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.settings import Timing
from holdfast.deployment import (
    Deployment,
    DeploymentError,
    Endpoint,
    FragmentSpec,
    OutputSpec,
    SourceSpec,
)
from holdfast.plans.budget import divide, division, end_to_end_us, told, wanted_us
from holdfast.plans.fragment_plans import FragmentPlan, FragmentStream
from holdfast.plans.plan import Plan, SourcePlan
from holdfast.plans.topology import Topology

SECOND = 1_000_000
BUCKET_US = 100_000
NOTHING = pa.schema([])


def fragment(name: str, *inputs: str) -> FragmentPlan:
    stream = FragmentStream(f"{name}.out", NOTHING, frozenset(inputs))
    return FragmentPlan(name, dict.fromkeys(inputs, NOTHING), (stream,), False, ())


def planned(*fragments: FragmentPlan, stime: str | None = None) -> Plan:
    outputs = tuple(each.outputs[0].stream for each in fragments)
    source = SourcePlan(NOTHING, stime, ())
    return Plan(BUCKET_US, {"load": source}, {each.name: each for each in fragments}, outputs)


CHAIN = planned(fragment("a", "load"), fragment("b", "a.out"), fragment("c", "b.out"))


def deployment(plan: Plan, delay_s: float, output: str, **needs_s: float) -> Deployment:
    return Deployment(
        name="small",
        path=Path("deployment.toml"),
        network=Path("network.py"),
        data=Path("data"),
        timing=Timing(bucket_us=1, delay_us=3 * SECOND, alpha_adapts=True),
        sources={name: SourceSpec(name, Endpoint()) for name in plan.sources},
        fragments={name: FragmentSpec(name, (Endpoint(),)) for name in plan.fragments},
        clients={},
        outputs={output: OutputSpec(int(delay_s * SECOND), measured=True)},
        measured={name: int(each * SECOND) for name, each in needs_s.items()},
    )


def test_before_anything_is_measured_all_have_the_same() -> None:
    found = deployment(CHAIN, 9, "c.out")
    assert divide(found, CHAIN) == dict.fromkeys("abc", 3 * SECOND)
    assert told(found, CHAIN)[-4].endswith(
        "as asked, divided equally: what jobs need is not measured yet (holdfast divide)"
    )
    assert division(found, CHAIN)["c.out"]["divide"] == "equal"


def test_who_is_slow_has_more_and_the_rest_is_shared_equally() -> None:
    found = deployment(CHAIN, 9, "c.out", a=0.2, b=2.0, c=0.2)
    shares = divide(found, CHAIN)
    wanted = wanted_us(found, CHAIN)
    # A replica waits half of its share at least, so what its jobs need is at most the other half.
    assert wanted["b"] == pytest.approx(4 * SECOND, abs=2)
    assert shares["b"] - wanted["b"] == pytest.approx(shares["a"] - wanted["a"], abs=2)
    assert 9 * SECOND - 10 <= sum(shares.values()) <= 9 * SECOND
    said = told(found, CHAIN)
    assert "output c.out: X = 9 s from the sources, as asked, divided by what jobs need" in said[-4]
    assert any("(3 on its longest path; its jobs need 2 s)" in line for line in said)
    assert division(found, CHAIN)["c.out"]["needs_s"] == {"a": 0.2, "b": 2.0, "c": 0.2}


def test_where_there_is_not_enough_each_has_its_part() -> None:
    found = deployment(CHAIN, 3, "c.out", a=1.0, b=2.0, c=1.0)
    shares = divide(found, CHAIN)
    assert shares["b"] == pytest.approx(1.5 * SECOND, abs=5)
    assert sum(shares.values()) <= 3 * SECOND


def test_a_new_fragment_counts_as_the_slowest_that_is_known() -> None:
    found = deployment(CHAIN, 9, "c.out", a=0.2, b=1.0)
    shares = divide(found, CHAIN)
    assert shares["c"] == shares["b"]


def test_an_alpha_by_hand_leaves_less_for_jobs_so_they_want_more() -> None:
    found = deployment(CHAIN, 30, "c.out", a=0.5, b=0.5, c=0.5)
    given = replace(found, timing=replace(found.timing, alpha_adapts=False))
    assert wanted_us(given, CHAIN)["a"] == pytest.approx(5 * SECOND, abs=2)


def test_who_waits_for_a_source_has_enough_for_that() -> None:
    plan = planned(fragment("a", "load"), fragment("b", "a.out"), stime="at")
    found = deployment(plan, 5, "b.out", a=0.05, b=1.9)
    late = {"load": replace(found.sources["load"], times={"lateness": SECOND})}
    topology = Topology(replace(found, sources=late), plan)
    assert topology.fragment_timing("a").alpha_x_us > SECOND + BUCKET_US
    # Without that it would have less than the source lags.
    assert divide(found, plan)["a"] < topology.delays_us["a"]


def test_what_is_too_little_is_refused_all_the_same() -> None:
    with pytest.raises(DeploymentError, match="400 ms over 3 fragments leave"):
        Topology(deployment(CHAIN, 0.4, "c.out", a=0.01, b=2.0, c=0.01), CHAIN)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Fragments that read the source or some before them, or both."""
    names = [f"f{index}" for index in range(draw(st.integers(1, 7)))]
    fragments = []
    for index, name in enumerate(names):
        above = draw(
            st.lists(st.sampled_from(names[:index]), unique=True) if index else st.just([])
        )
        reads = [f"{each}.out" for each in above]
        if not reads or draw(st.booleans()):
            reads.append("load")
        fragments.append(fragment(name, *reads))
    return planned(*fragments)


@given(plans(), st.lists(st.floats(0.001, 3.0), min_size=7, max_size=7), st.floats(1.0, 60.0))
def test_no_path_takes_longer_than_x(plan: Plan, needs_s: list[float], delay_s: float) -> None:
    output = plan.outputs[-1]
    needs = dict(zip(plan.fragments, needs_s, strict=False))
    found = deployment(plan, delay_s, output, **needs)
    shares, wanted = divide(found, plan), wanted_us(found, plan)
    assert end_to_end_us(plan, shares, output) <= int(delay_s * SECOND)
    heaviest = end_to_end_us(plan, wanted, output)
    if heaviest <= int(delay_s * SECOND):
        on_paths = division(found, plan)[output]["fragments"]
        assert all(shares[name] >= wanted[name] for name in on_paths)
