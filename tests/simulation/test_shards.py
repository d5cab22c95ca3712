"""Fragments in shards: the merged streams are those of one replica, whoever is lost."""

from __future__ import annotations

import pytest

from holdfast.simulation.mutations import MUTATIONS
from holdfast.simulation.run import Scenario, Verdict, run, scenario_of, shaped


def of_shape(seed: int, shape: str) -> Scenario:
    scenario = shaped(seed, shape)
    assert scenario is not None
    return scenario


def around(seed: int) -> Scenario:
    return of_shape(seed, "around")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 12])
def test_the_servers_of_a_ring_are_lost_in_turn(seed: int) -> None:
    result = run(around(seed))
    assert (result.verdict, result.reason) == (Verdict.FINE, "")
    assert result.stable > 100
    assert result.tentative > 0


def test_the_second_copy_of_a_shard_is_where_the_next_one_is() -> None:
    scenario = next(
        one
        for one in map(around, range(40))
        if one.spec.fragments[0].standby and one.server_of["f00.1a"] != one.server_of["f00.2a"]
    )
    shards = len(scenario.spec.fragments) - 1
    for number in range(1, shards + 1):
        following = number % shards + 1
        second, first = (
            scenario.server_of[f"f00.{number}b"],
            scenario.server_of[f"f00.{following}a"],
        )
        assert second == first


def test_some_random_networks_have_shards() -> None:
    found = [
        one.name
        for seed in range(60)
        for one in scenario_of(seed).spec.fragments
        if one.whole is not None
    ]
    assert len(found) > 3


@pytest.mark.parametrize(
    "name",
    [
        "give the last slots to nobody",
        "let ranges of slots overlap",
        "divide by something else than the key",
        "merge in the order of the shards",
        "merge up to the shard that is furthest",
    ],
)
def test_mistakes_in_dividing_and_merging_are_found_soon(name: str) -> None:
    (found,) = [one for one in MUTATIONS if one.name == name]
    with found.applied():
        assert any(run(around(seed)).verdict is not Verdict.FINE for seed in range(5))


def losing(seed: int) -> Scenario:
    return of_shape(seed, "losses")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_as_many_neighbours_are_lost_at_once_as_there_are_copies(seed: int) -> None:
    result = run(losing(seed))
    assert (result.verdict, result.reason) == (Verdict.FINE, "")
    assert result.stable > 100


@pytest.mark.slow
def test_a_mistake_of_rings_is_found() -> None:
    """The others are looked for by the benchmark of mutations, which ends make test-all."""
    name = "hold the last part of a shard where the shard is"
    (found,) = [one for one in MUTATIONS if one.name == name]
    with found.applied():
        assert run(around(4)).verdict is not Verdict.FINE


def rescaled(seed: int) -> Scenario:
    return of_shape(seed, "rescalings")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(3, marks=pytest.mark.thorough), 4])
def test_another_number_of_shards_takes_over_while_servers_are_lost(seed: int) -> None:
    result = run(rescaled(seed))
    assert (result.verdict, result.reason) == (Verdict.FINE, "")
    assert result.faults["another number of shards"] >= 1
    assert result.stable > 30


@pytest.mark.slow
def test_a_mistake_in_handing_over_is_found_soon() -> None:
    (found,) = [one for one in MUTATIONS if one.name == "take over slots of others as well"]
    with found.applied():
        assert run(rescaled(3)).verdict is not Verdict.FINE


def rescaled_copies(seed: int) -> Scenario:
    return of_shape(seed, "rescaled_copies")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(21, marks=pytest.mark.thorough)])
def test_a_ring_of_copies_gets_another_number_of_shards_while_servers_are_lost(seed: int) -> None:
    result = run(rescaled_copies(seed))
    assert (result.verdict, result.reason) == (Verdict.FINE, "")
    assert result.faults["another number of shards"] >= 1
    assert result.stable > 30


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "hold a new shards state at the next one wherever that is",
        "say that a copy sleeps which has yet to arrive",
        "let copies of a new shard wait for each other",
        "lend nothing to those who take over from copies",
    ],
)
def test_mistakes_of_copies_that_take_over_are_found_at_once(name: str) -> None:
    (found,) = [one for one in MUTATIONS if one.name == name]
    with found.applied():
        assert run(rescaled_copies(1)).verdict is not Verdict.FINE


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [24, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (4, 5, 6, 26))]
)
def test_a_ring_in_parts_gets_another_number_of_shards_while_servers_are_lost(seed: int) -> None:
    result = run(of_shape(seed, "rescaled_parts"))
    assert (result.verdict, result.reason) == (Verdict.FINE, "")
    assert result.faults["another number of shards"] >= 1
    assert result.stable > 30


def called_off(seed: int) -> Scenario:
    return of_shape(seed, "called_off")


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [3, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (2, 5, 10, 14))]
)
def test_another_number_of_shards_is_called_off_while_servers_are_lost(seed: int) -> None:
    result = run(called_off(seed))
    assert (result.verdict, result.reason) == (Verdict.FINE, "")
    assert result.faults["another number of shards called off"] >= 1
    assert result.stable > 30


@pytest.mark.slow
def test_what_is_kept_for_shards_that_were_called_off_is_noticed() -> None:
    name = "go on keeping for new shards that are gone"
    (found,) = [one for one in MUTATIONS if one.name == name]
    with found.applied():
        assert run(called_off(4)).verdict is not Verdict.FINE


def rescaled_windows(seed: int) -> Scenario:
    return of_shape(seed, "rescaled_windows")


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [10, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (7, 8))]
)
def test_window_states_are_handed_over_from_log_to_log(seed: int) -> None:
    result = run(rescaled_windows(seed))
    assert (result.verdict, result.reason) == (Verdict.FINE, "")
    assert result.faults["another number of shards"] >= 1
    assert result.stable > 30


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "replay nothing of what windows were handed over with",
        "lend what the log had of windows long ago",
    ],
)
def test_mistakes_in_handing_window_states_over_are_found_soon(name: str) -> None:
    (found,) = [one for one in MUTATIONS if one.name == name]
    with found.applied():
        seeds = (0, 8, 10, *range(30))
        assert any(run(rescaled_windows(seed)).verdict is not Verdict.FINE for seed in seeds)


def rescaled_deliveries(seed: int) -> Scenario:
    return of_shape(seed, "rescaled_deliveries")


@pytest.mark.thorough
def test_what_nobody_has_confirmed_is_handed_over_to_the_disk_of_a_new_generation() -> None:
    """The client is away from before the rescaling until after those who merge were lost."""
    result = run(rescaled_deliveries(2))
    assert (result.verdict, result.reason) == (Verdict.FINE, "")
    assert result.faults["another number of shards"] >= 1
    assert result.stable > 30


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "hand over what nobody has confirmed in memory only",
        pytest.param(
            "begin again at the record whatever was handed over", marks=pytest.mark.thorough
        ),
    ],
)
def test_mistakes_in_handing_over_what_nobody_has_confirmed_are_found(name: str) -> None:
    (found,) = [one for one in MUTATIONS if one.name == name]
    with found.applied():
        result = run(rescaled_deliveries(2))
    assert result.verdict is Verdict.WRONG
    assert "cannot serve client0" in result.reason


def rescaled_at_most_once(seed: int) -> Scenario:
    return of_shape(seed, "rescaled_at_most_once")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_at_most_once_nothing_comes_from_two_generations(seed: int) -> None:
    result = run(rescaled_at_most_once(seed))
    assert (result.verdict, result.reason) == (Verdict.FINE, "")
    assert result.faults["another number of shards"] >= 1
    assert result.stable > 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("take a new generation for a stream that was never read", 4),
        pytest.param(
            "go on with a new generation by the ids of the old one", 5, marks=pytest.mark.thorough
        ),
        pytest.param(
            "forget who takes part where streams begin anew", 12, marks=pytest.mark.thorough
        ),
    ],
)
def test_mistakes_between_generations_at_most_once_are_found(name: str, seed: int) -> None:
    (found,) = [one for one in MUTATIONS if one.name == name]
    with found.applied():
        assert run(rescaled_at_most_once(seed)).verdict is Verdict.WRONG
