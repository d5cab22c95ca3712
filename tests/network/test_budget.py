"""X of an output is divided over the fragments on its paths, and none takes longer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.settings import Timing
from holdfast.deployment import (
    Deployment,
    DeploymentError,
    Endpoint,
    FragmentSpec,
    OutputSpec,
    SourceSpec,
)
from holdfast.plans.budget import check_budget, divide, end_to_end_us, told
from holdfast.plans.fragment_plans import FragmentPlan, FragmentStream
from holdfast.plans.plan import Plan, SourcePlan
from holdfast.plans.topology import Topology

SECOND = 1_000_000
NOTHING = pa.schema([])


def fragment(name: str, *inputs: str) -> FragmentPlan:
    stream = FragmentStream(f"{name}.out", NOTHING, frozenset(inputs))
    return FragmentPlan(name, dict.fromkeys(inputs, NOTHING), (stream,), False, ())


# load ─▶ a ─▶ b ─▶ d ─▶ d.out, and weather ─▶ c ─▶ d, c.out being an output, too
PLAN = Plan(
    200_000,
    {name: SourcePlan(NOTHING, None, ()) for name in ("load", "weather")},
    {
        "a": fragment("a", "load"),
        "b": fragment("b", "a.out"),
        "c": fragment("c", "weather"),
        "d": fragment("d", "b.out", "c.out"),
    },
    ("d.out", "c.out"),
)


def deployment(**outputs: float) -> Deployment:
    return Deployment(
        name="small",
        path=Path("deployment.toml"),
        network=Path("network.py"),
        data=Path("data"),
        timing=Timing(bucket_us=1, delay_us=3 * SECOND, alpha_adapts=True),
        sources={name: SourceSpec(name, Endpoint()) for name in PLAN.sources},
        fragments={name: FragmentSpec(name, (Endpoint(),)) for name in PLAN.fragments},
        clients={},
        outputs={
            name.replace("_", "."): OutputSpec(int(each * SECOND)) for name, each in outputs.items()
        },
    )


def test_without_a_delay_of_its_own_every_fragment_has_x() -> None:
    shares = divide(deployment(), PLAN)
    assert shares == dict.fromkeys("abcd", 3 * SECOND)
    assert end_to_end_us(PLAN, shares, "d.out") == 9 * SECOND


def test_the_fragments_of_the_longest_path_share_equally() -> None:
    shares = divide(deployment(d_out=6), PLAN)
    assert shares == {"a": 2 * SECOND, "b": 2 * SECOND, "c": 3 * SECOND, "d": 2 * SECOND}
    assert end_to_end_us(PLAN, shares, "d.out") == 6 * SECOND


def test_of_two_outputs_the_stricter_counts() -> None:
    shares = divide(deployment(d_out=6, c_out=1), PLAN)
    assert shares["c"] == SECOND
    assert end_to_end_us(PLAN, shares, "d.out") <= 6 * SECOND


def test_replicas_are_told_their_share() -> None:
    topology = Topology(deployment(d_out=6), PLAN)
    assert topology.replica("b-1").timing.delay_us == 2 * SECOND
    assert topology.replica("c-1").timing.delay_us == 3 * SECOND
    assert topology.replica("b-1").timing.alpha_adapts


def test_the_division_is_said_in_words() -> None:
    lines = told(deployment(d_out=6), PLAN)
    assert lines[0] == "output d.out: X = 6 s from the sources, as asked"
    said = "  fragment b: 2 s (3 on its longest path), of which tuples wait at most 1.8 s"
    assert said in lines
    assert "output c.out: X = 3 s from the sources, by timing.delay" in lines


def test_what_cannot_be_divided_is_refused_with_the_sum() -> None:
    with pytest.raises(DeploymentError, match="600 ms over 3 fragments leave"):
        check_budget(deployment(d_out=0.6), PLAN)
    with pytest.raises(DeploymentError, match="the network has no such output"):
        check_budget(deployment(e_out=3), PLAN)


def with_lateness(given: Deployment, **seconds: float) -> tuple[Deployment, Plan]:
    """The same, with sources that bring their own time and may be so late."""
    late = {
        name: replace(given.sources[name], times={"lateness": int(each * SECOND)})
        for name, each in seconds.items()
    }
    own = {name: replace(PLAN.sources[name], stime="at") for name in seconds}
    plan = replace(PLAN, sources={**PLAN.sources, **own})
    return replace(given, sources={**given.sources, **late}), plan


def test_alpha_does_not_fall_below_what_a_source_lags() -> None:
    given = deployment()
    late, plan = with_lateness(given, load=2)
    topology = Topology(late, plan)
    for name in ("a-1", "d-1"):  # who reads it, and who merges it with what is not late
        timing = topology.replica(name).timing
        assert timing.least_alpha_x_us > 2 * SECOND + plan.bucket_us
    for name in ("b-1", "c-1"):  # what b has is all as late, and c has nothing of it
        assert topology.replica(name).timing.alpha_least == 0.5
    assert Topology(given, PLAN).replica("a-1").timing.alpha_least == 0.5


def test_a_source_must_fit_in_whoever_waits_for_it_however_far_down() -> None:
    late, plan = with_lateness(deployment(d_out=6), weather=2)
    with pytest.raises(DeploymentError) as raised:  # c has 3 s, which is enough, and d has 2 s
        Topology(late, plan)
    assert (
        "sources.weather: tuples would wait lateness 2 s + a bucket of 200 ms + 100 ms between two "
        "boundaries = 2.3 s for it in d, but may wait only alpha x delay = 0.9 x 2 s = 1.8 s: "
        "everything would be tentative for ever. Make lateness shorter, or the delay of the "
        "outputs behind it longer"
    ) in str(raised.value)
    # Where the others are as late nobody waits for it.
    late, plan = with_lateness(deployment(d_out=6), weather=1, load=1)
    topology = Topology(late, plan)
    assert topology.replica("d-1").timing.alpha_least == 0.5
    late, plan = with_lateness(deployment(d_out=6), weather=2, load=1)
    assert Topology(late, plan).replica("d-1").timing.least_alpha_x_us > SECOND


def test_a_producer_is_idle_soon_enough_for_whoever_waits_for_it() -> None:
    given, plan = with_lateness(deployment(d_out=6), weather=0)
    # Half of what αX leaves in d, which has 2 s, and not in c, which reads it and has 3 s.
    assert Topology(given, plan).entry("weather").lane_idle_us == (1_800_000 - 300_000) // 2
