"""Short runs of everything: the long ones are for ``holdfast simulate`` and the benchmarks."""

from __future__ import annotations

import pytest

from holdfast.simulation.main import run as simulate_command
from holdfast.simulation.main import simulate
from holdfast.simulation.mutations import MUTATIONS
from holdfast.simulation.run import Verdict, run, scenario_of
from holdfast.simulation.shrink import shrink

SEEDS = 8
# Quick to find, and of every kind.
PLANTED = [
    ("call a bucket stable when one input is", Verdict.WRONG),
    ("never trim", Verdict.WRONG),
    ("publish tuples before they are on disk", Verdict.CRASH),
]


def test_some_seeds_keep_every_promise() -> None:
    results = list(simulate(range(SEEDS), workers=1))
    assert [one.reason for one in results if one.verdict is not Verdict.FINE] == []
    assert sum(one.stable for one in results) > 1_000
    assert sum(one.tentative for one in results) > 10


def test_one_seed_is_one_run() -> None:
    assert run(scenario_of(5)) == run(scenario_of(5))


@pytest.mark.parametrize(("name", "verdict"), PLANTED)
def test_planted_mistakes_are_found(name: str, verdict: Verdict) -> None:
    (planted,) = [one for one in MUTATIONS if one.name == name]
    with planted.applied():
        verdicts = [run(scenario_of(seed)).verdict for seed in range(2)]
    assert verdict in verdicts


def test_there_are_enough_mutations_and_each_has_a_name_of_its_own() -> None:
    assert len(MUTATIONS) >= 25
    assert len({one.name for one in MUTATIONS}) == len(MUTATIONS)


def test_a_failing_schedule_becomes_shorter() -> None:
    (planted,) = [one for one in MUTATIONS if one.name == "never trim"]
    with planted.applied():
        scenario = scenario_of(1)
        result = run(scenario)
        smallest, still = shrink(scenario, result, tries_max=3)
    assert still.verdict is result.verdict
    assert len(smallest.schedule.faults) < len(scenario.schedule.faults)


def test_the_command_tells_a_story_and_its_exit_code_says_how_it_ended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert simulate_command(["--seed", "0", "--trace"]) == 0
    told = capsys.readouterr().out
    assert "faults:" in told
    assert "STABLE" in told
    (planted,) = [one for one in MUTATIONS if one.name == "never trim"]
    with planted.applied():
        assert simulate_command(["--seed", "0", "--no-shrink"]) == int(Verdict.WRONG)
        assert simulate_command(["--seeds", "1", "--workers", "1", "--no-shrink"]) == 4
    assert "bounded buffers" in capsys.readouterr().out
