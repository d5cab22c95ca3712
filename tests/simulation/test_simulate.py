"""Short runs of everything: the long ones are for ``holdfast simulate`` and the benchmarks."""

from __future__ import annotations

from itertools import islice

import pytest

from holdfast.simulation.main import run as simulate_command
from holdfast.simulation.main import simulate
from holdfast.simulation.mutations import MUTATIONS, Mutation
from holdfast.simulation.run import Verdict, run, scenario_of
from holdfast.simulation.shrink import shrink

SEEDS = range(22, 26)
# A mistake, a seed that finds it soon, and how the command must end.
PLANTED = [
    ("call a bucket stable when one input is", 0, Verdict.WRONG),
    ("never trim", 0, Verdict.WRONG),
    ("publish tuples before they are on disk", 0, Verdict.CRASH),
    ("let the second replica never reconcile", 6, Verdict.STALL),
    ("blame the neighbour", 98, Verdict.WRONG),
    ("learn nothing from slow jobs", 61, Verdict.WRONG),
]


def planted(name: str) -> Mutation:
    (found,) = [one for one in MUTATIONS if one.name == name]
    return found


@pytest.mark.slow
def test_some_seeds_keep_every_promise() -> None:
    results = list(simulate(SEEDS, workers=1))
    assert [one.reason for one in results if one.verdict is not Verdict.FINE] == []
    assert sum(one.stable for one in results) > 1_000
    assert sum(one.tentative for one in results) > 10


def test_one_seed_is_one_run() -> None:
    assert run(scenario_of(5)) == run(scenario_of(5))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed", "verdict"), PLANTED)
def test_planted_mistakes_are_found_and_the_exit_code_tells_which_kind(
    name: str, seed: int, verdict: Verdict, capsys: pytest.CaptureFixture[str]
) -> None:
    # The generator may change what a seed stands for: look at some more then.
    with planted(name).applied():
        for one in range(seed, seed + 20):
            if simulate_command(["--seed", str(one), "--no-shrink"]) == int(verdict):
                break
    assert f"seed {one}: {verdict.name.lower()}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "never notice a lost subscription",
        "let pass in order what came early",
        "claim results that were not computed",
        "let early results wait for the order",
    ],
)
def test_mistakes_that_one_shape_of_schedules_shows_are_found_within_few_runs(name: str) -> None:
    found = planted(name)
    with found.applied():
        results = (run(one) for one in islice(found.scenarios(), 20))
        assert any(one.verdict is not Verdict.FINE for one in results)


def test_the_exit_codes_are_the_documented_ones() -> None:
    assert [int(one) for one in Verdict] == [0, 3, 4, 5]
    assert [one.name for one in Verdict] == ["FINE", "CRASH", "WRONG", "STALL"]


def test_the_seed_that_found_a_mistake_before_is_tried_first() -> None:
    found = planted("never trim")
    assert [one.seed for one in islice(found.scenarios(), 3)] == [0, 1, 2]
    assert [one.seed for one in islice(found.scenarios(before=7), 3)] == [7, 0, 1]


def test_there_are_enough_mutations_and_each_has_a_name_of_its_own() -> None:
    assert len(MUTATIONS) >= 60
    assert len({one.name for one in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.slow
def test_a_failing_schedule_becomes_shorter() -> None:
    with planted("do not open a broken feed again").applied():
        long = (one for one in map(scenario_of, range(60)) if len(one.schedule.faults) > 4)
        scenario = next(one for one in long if run(one).verdict)
        result = run(scenario)
        smallest, still = shrink(scenario, result, tries_max=4)
    assert still.verdict is result.verdict
    assert len(smallest.schedule.faults) < len(scenario.schedule.faults)


def test_the_command_tells_a_story(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate_command(["--seed", "5", "--trace"]) == 0
    told = capsys.readouterr().out
    assert "faults:" in told
    assert "STABLE" in told


def test_of_several_seeds_the_first_that_failed_decides(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with planted("never trim").applied():
        several = ["--first", "0", "--seeds", "2", "--workers", "1", "--no-shrink"]
        assert simulate_command(several) == int(Verdict.WRONG)
    assert "bounded buffers" in capsys.readouterr().out
