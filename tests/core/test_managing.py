"""What a coordinator decides, look by look: the rows of the table in core/managing.py."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.adaptation import AdaptationSettings
from holdfast.core.ground import Ground
from holdfast.core.managing import (
    AddReplica,
    Decision,
    Kept,
    Managing,
    RemoveReplicas,
    Replicas,
    Seen,
)
from holdfast.core.placement import Flow, Query, Site

SECOND = 1_000_000
SERVERS = ("a", "b", "c", "d")
# The source and the application are at "a"; others are further and further away.
FAR = {"a": 0.0, "b": 10.0, "c": 20.0, "d": 30.0}
QUERY = Query(
    {"source": "a", "application": "a"},
    ("main",),
    (Flow("source", "main", 10.0), Flow("main", "application", 1.0)),
)


def ground(*there: str, zones: Mapping[str, str] | None = None) -> Ground:
    servers = there or SERVERS
    delays = {one: {two: abs(FAR[one] - FAR[two]) for two in servers} for one in servers}
    sites = [Site(each, (zones or {}).get(each, "")) for each in servers]
    return Ground(QUERY, delays, (sites,))


def main(wanted: int = 2, **at: str) -> Replicas:
    return Replicas("main", {name.replace("_", "-"): server for name, server in at.items()}, wanted)


def look(
    replicas: Replicas,
    *lost: str,
    states: Mapping[str, str] | None = None,
    known: Ground | None = None,
    managing: Managing | None = None,
    now: int = 0,
    kept: Mapping[str, Kept] | None = None,
) -> Decision:
    there = [each for each in SERVERS if each not in lost]
    kept = dict.fromkeys(replicas.at, Kept(0, {})) if kept is None else kept
    seen = Seen(frozenset(lost), states or {}, known or ground(*there), True, kept)
    return (managing or Managing()).look([replicas], seen, now)


STABLE = {f"m-{number}": "stable" for number in range(1, 6)}


def test_a_lost_replica_is_replaced_where_it_costs_least() -> None:
    found = look(main(m_1="a", m_2="b"), "b")
    assert found.order == AddReplica("main", "m-1", "c", lost="m-2")


def test_the_lost_one_goes_when_those_left_are_stable() -> None:
    replicas = main(m_1="a", m_2="b", m_3="c")
    assert Managing().asks([replicas], frozenset("b")) == ["m-1", "m-3"]
    waits = look(replicas, "b", states={"m-1": "stable", "m-3": "joining"})
    assert waits == Decision(notes=("m-3 is not stable yet; m-2 goes when it is",))
    assert look(replicas, "b", states=STABLE).order == RemoveReplicas("main", ("m-2",))


def test_what_nobody_else_has_is_waited_for() -> None:
    (note,) = look(main(1, m_1="b"), "b").notes
    assert note == "m-1 waits for b: nobody else has what it has on disk"
    pair = Replicas("main", {"m-1": "a", "m-2": "b"}, 2, is_pair=True)
    (note,) = look(pair, "b").notes
    assert "m-2 waits for b" in note


def test_nothing_is_placed_beside_one_that_may_be_lost_too() -> None:
    found = look(main(3, m_1="a", m_2="b", m_3="c"), "b", known=ground("a", "d"))
    assert found == Decision(notes=("m-2 is lost; c is silent, perhaps lost, too",))


def test_no_room_is_said() -> None:
    found = look(main(m_1="a", m_2="b"), "b", "c", "d")
    assert found == Decision(notes=("no server that is there can take the place of m-2",))


def test_of_too_many_the_one_that_moves_goes_and_only_when_all_are_stable() -> None:
    replicas = Replicas("main", {"m-1": "a", "m-2": "b", "m-3": "c"}, 2, {"m-1": "m-3"})
    waits = look(replicas, states={**STABLE, "m-3": "joining"})
    assert waits == Decision(notes=("m-3 is not stable yet; one more goes when it is",))
    assert look(replicas, states=STABLE).order == RemoveReplicas("main", ("m-1",))


def test_of_too_many_the_dearest_goes_or_one_of_two_that_fail_together() -> None:
    replicas = main(m_1="a", m_2="b", m_3="d")
    assert look(replicas, states=STABLE).order == RemoveReplicas("main", ("m-3",))
    together = ground(zones={"a": "one", "b": "one"})
    found = look(replicas, states=STABLE, known=together)
    assert found.order == RemoveReplicas("main", ("m-2",))


def test_one_that_alone_has_older_results_stays_until_nobody_needs_them() -> None:
    replicas = Replicas("main", {"m-1": "a", "m-3": "b", "m-4": "c"}, 2, {"m-1": "m-4"})
    older = {"m-1": 5, "m-3": 90, "m-4": 100}

    def kept(first_ids: Mapping[str, int]) -> dict[str, Kept]:
        return {
            name: Kept(0 if name == "m-1" else 7, {"out": first})
            for name, first in first_ids.items()
        }

    managing = Managing()
    waits = look(replicas, states=STABLE, managing=managing, kept=kept(older))
    assert waits.order is None
    assert waits.notes == ("m-1 has older results than any other, and goes when nobody needs them",)
    # All have acknowledged more, and the others have trimmed that a little earlier.
    further = kept({"m-1": 110, "m-3": 112, "m-4": 115})
    found = look(replicas, states=STABLE, managing=managing, kept=further)
    assert found.order == RemoveReplicas("main", ("m-1",))
    # A later life begins later.
    anew = {**kept(older), "m-3": Kept(8, {"out": 120}), "m-4": Kept(8, {"out": 120})}
    assert look(replicas, states=STABLE, managing=managing, kept=anew).order is None
    # Where none moves, another one goes.
    none_moves = main(m_1="d", m_3="b", m_4="c")
    found = look(none_moves, states=STABLE, kept=kept(older))
    assert found.order == RemoveReplicas("main", ("m-4",))
    assert look(none_moves, states=STABLE, kept={}).order is None


def test_a_replica_moves_to_where_it_has_long_been_better_off() -> None:
    settings = AdaptationSettings(hold_us=10 * SECOND, rest_us=20 * SECOND)
    managing, replicas = Managing(settings), main(m_1="a", m_2="d")
    assert look(replicas, managing=managing, now=0) == Decision()
    # Something else in between, and it begins anew.
    look(replicas, "c", managing=managing, now=9 * SECOND)
    lost = main(m_1="a", m_2="d", m_3="c")
    look(lost, "c", managing=managing, now=10 * SECOND)
    assert look(replicas, managing=managing, now=11 * SECOND) == Decision()
    found = look(replicas, managing=managing, now=21 * SECOND)
    assert found.order == AddReplica("main", "m-1", "b", instead_of="m-2")


def test_what_somebody_placed_stays() -> None:
    settings = AdaptationSettings(hold_us=1, rest_us=1)
    for replicas in (
        Replicas("main", {"m-1": "a", "m-2": "d"}, 2, stays=True),
        Replicas("main", {"m-1": "a", "m-2": "d"}, 2, is_pair=True),
    ):
        managing = Managing(settings)
        assert look(replicas, managing=managing, now=0) == Decision()
        assert look(replicas, managing=managing, now=SECOND) == Decision()
