"""What replicas are worth, and which of them go."""

from __future__ import annotations

import pytest

from holdfast.core.collection import Collection, FeedFacts, Running, StreamReplica


def running(
    weights: dict[tuple[str, str], tuple[float, float]] | None = None,
    zones: dict[str, str] | None = None,
) -> Running:
    """Two fragments with two replicas each: source -> a -> b -> screen; (cost, weight)."""
    said = weights or {}
    feeds = {}
    for one in ("a1", "a2"):
        feeds[StreamReplica("source", "source", one)] = (1.0, 1.0)
        for other in ("b1", "b2"):
            feeds[StreamReplica("a", one, other)] = (1.0, 1.0)
    for other in ("b1", "b2"):
        feeds[StreamReplica("b", other, "screen")] = (1.0, 1.0)
    facts = {
        feed: FeedFacts(*said.get((feed.producer, feed.consumer), found))
        for feed, found in feeds.items()
    }
    replicas = {"a": ["a1", "a2"], "b": ["b1", "b2"]}
    return Running(
        replicas, zones or dict.fromkeys(("a1", "a2", "b1", "b2"), "x"), {"screen": 1.0}, facts
    )


EARLY = {
    ("b1", "screen"): (1.0, 3.0),
    ("a1", "b1"): (1.0, 9.0),
    ("a2", "b1"): (1.0, 1.0),
}


def test_utility_flows_up_from_the_applications_by_who_is_early() -> None:
    feeds, replicas = Collection(running(EARLY), 1).utilities()
    assert feeds[StreamReplica("b", "b1", "screen")] == pytest.approx(0.75)
    assert feeds[StreamReplica("a", "a1", "b1")] == pytest.approx(0.9 * 0.75)
    assert feeds[StreamReplica("a", "a1", "b2")] == pytest.approx(0.5 * 0.25)
    assert replicas["a1"] == pytest.approx(0.9 * 0.75 + 0.125)
    assert replicas["a1"] + replicas["a2"] == pytest.approx(1.0)
    # A source feeds all of it.
    assert replicas["source"] == pytest.approx(1.0)


def test_an_application_with_more_weight_keeps_what_feeds_it() -> None:
    found = running()
    feeds = {**found.feeds, StreamReplica("a", "a2", "alarm"): FeedFacts(1.0, 1.0)}
    heavy = Running(found.replicas, found.zones, {"screen": 1.0, "alarm": 5.0}, feeds)
    _, replicas = Collection(heavy, 1).utilities()
    assert replicas["a2"] == pytest.approx(5.5)


def test_the_least_useful_go_until_the_cost_is_what_was_said() -> None:
    collection = Collection(running(EARLY), 1)
    assert collection.cost == 8.0
    kept = collection.collect(7.0)
    assert kept.discarded == [StreamReplica("a", "a2", "b1")]
    assert collection.collect(7.0).discarded == kept.discarded


def test_with_one_replica_of_each_left_everything_still_flows() -> None:
    kept = Collection(running(EARLY), 1).collect(0.0)
    assert kept.replicas == {"a": ["a1"], "b": ["b1"]}
    assert kept.feeds == {
        StreamReplica("source", "source", "a1"),
        StreamReplica("a", "a1", "b1"),
        StreamReplica("b", "b1", "screen"),
    }


def test_never_below_k_min() -> None:
    kept = Collection(running(EARLY), 2).collect(0.0)
    assert kept.replicas == {"a": ["a1", "a2"], "b": ["b1", "b2"]}
    assert not kept.discarded


def test_the_last_one_of_a_zone_stays_unless_one_is_enough() -> None:
    found = running(EARLY)
    three = Running(
        {**found.replicas, "a": ["a1", "a2", "a3"]},
        {"a1": "x", "a2": "y", "a3": "x", "b1": "x", "b2": "y"},
        found.applications,
        {
            **found.feeds,
            StreamReplica("source", "source", "a3"): FeedFacts(1.0, 1.0),
            StreamReplica("a", "a3", "b1"): FeedFacts(1.0, 5.0),
        },
    )
    kept = Collection(three, 2).collect(0.0)
    # "a2" is worth least, and alone on its side.
    assert "a2" in kept.replicas["a"]
    assert len(kept.replicas["a"]) == 2
    assert "a2" not in Collection(three, 1).collect(0.0).replicas["a"]


def test_a_reader_that_loses_its_last_stream_gets_another() -> None:
    weights = {("a1", "b1"): (1.0, 99.0), ("a2", "b1"): (1.0, 1.0), ("b2", "screen"): (1.0, 9.0)}
    weights |= {("a2", "b2"): (1.0, 99.0), ("a1", "b2"): (1.0, 1.0)}
    kept = Collection(running(weights), 1).collect(0.0)
    (only,) = kept.replicas["a"]
    (reader,) = kept.replicas["b"]
    assert StreamReplica("a", only, reader) in kept.feeds
