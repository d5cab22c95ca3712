"""Submissions: what is asked of a deployment, where it goes, and what is the same one again."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.cluster.desired import LARGEST_BYTES, Desired, Submission
from holdfast.cluster.placed import fits
from holdfast.cluster.placing import (
    NotPlaced,
    Servers,
    check_places,
    choose_places,
)
from holdfast.commands.cluster import explained
from holdfast.core.placement import Flow, Query
from holdfast.errors import HoldfastError

QUERY = Query(
    {"load": "a", "client screen": "a"},
    ("main",),
    (Flow("load", "main"), Flow("main", "client screen")),
)


def card(name: str, delays: dict[str, float], **more: Any) -> dict[str, Any]:
    found = {"name": name, "address": f"{name}:1", "zone": "", "cores": 2, "cpu": 0.1}
    listed = {f"{other}:1": delay for other, delay in delays.items()}
    return {**found, "memory": 0.1, "delays_ms": listed, **more}


def servers(**more: dict[str, Any]) -> Servers:
    """a, b and c, which is far away."""
    return Servers(
        {
            "a": card("a", {"b": 10.0, "c": 50.0}, **more.get("a", {})),
            "b": card("b", {"a": 12.0, "c": 50.0}, **more.get("b", {})),
            "c": card("c", {"a": 50.0}, **more.get("c", {})),
        }
    )


def test_delays_are_the_mean_of_both_ends_and_long_where_nobody_has_measured() -> None:
    delays = servers().delays()
    assert delays["a"]["b"] == delays["b"]["a"] == 11.0
    assert delays["a"]["a"] < 1.0
    lonely = Servers({"a": card("a", {}), "b": card("b", {})})
    assert lonely.delays()["a"]["b"] == 200.0


def test_replicas_go_where_it_is_cheap_and_apart() -> None:
    assert choose_places(QUERY, servers(), {"main": 2}, {}).places == {"main": ("a", "b")}
    apart = servers(a={"zone": "x"}, b={"zone": "x"})
    assert choose_places(QUERY, apart, {"main": 2}, {}).places == {"main": ("a", "c")}


def test_servers_that_were_seen_to_fail_together_do_not_both_have_one_if_others_are_left() -> None:
    seen = Servers(servers().cards, {"a": "/a", "b": "/a", "c": ""})
    assert choose_places(QUERY, seen, {"main": 2}, {}).places == {"main": ("a", "c")}
    assert set(choose_places(QUERY, seen, {"main": 3}, {}).places["main"]) == {"a", "b", "c"}


def test_a_busy_server_is_taken_only_if_no_other_is_left() -> None:
    busy = servers(b={"cpu": 0.99})
    assert choose_places(QUERY, busy, {"main": 2}, {}).places == {"main": ("a", "c")}
    assert set(choose_places(QUERY, busy, {"main": 3}, {}).places["main"]) == {"a", "b", "c"}


def test_what_cannot_be_placed_is_refused_with_the_reason() -> None:
    with pytest.raises(NotPlaced, match=r"needs 4 replicas .* of 3 servers in 3 zones"):
        choose_places(QUERY, servers(), {"main": 4}, {})
    away = Query({"load": "z"}, ("main",), (Flow("load", "main"),))
    with pytest.raises(NotPlaced, match="load is to run on z, which does not answer now"):
        choose_places(away, servers(), {"main": 1}, {})


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"sources": {"load": {}}}, r"sources.load.listen: write the server .* a, b; got None"),
        ({"clients": {"screen": {"sink": "x", "listen": "q"}}}, "clients.screen.listen"),
        ({"fragments": {"main": {"replicas": ["q"]}}}, "'q' is no server"),
        (
            {"fragments": {"main": {"shards": 2}}},
            "with shards are not placed by a cluster; run it with holdfast up",
        ),
    ],
)
def test_sources_and_clients_say_where_they_are(tables: dict[str, Any], said: str) -> None:
    with pytest.raises(NotPlaced, match=said):
        check_places(tables, {"a": "", "b": ""})


def test_why_a_replica_is_where_it_is() -> None:
    (first, second) = servers().ground(QUERY).explain({"main": ["a", "b"]})
    assert first.runner_up == ("c", 100.0)
    text = explained(
        {**vars_of(second), "runner_up": list(second.runner_up) if second.runner_up else None}
    )
    assert "main at b: its streams cost 22.0" in text
    assert "at c, the second best, they would cost 100.0" in text
    assert "a has a replica of the fragment" in text


def vars_of(choice: Any) -> dict[str, Any]:
    names = ("fragment", "server", "cost", "runner_up", "ruled_out")
    return {name: getattr(choice, name) for name in names}


def submission(**more: Any) -> Submission:
    return Submission({}, "network.py", {"network.py": "YQ=="}, "{}", **more)


def test_the_desired_state_is_one_text() -> None:
    desired = Desired().with_server("a:1", "a", "x", "5").with_submission("one", submission())
    assert Desired.read(desired.text()) == desired
    assert desired.names() == {"a": "a:1"}
    assert Desired.read(desired.text()).without_submission("one").submissions == {}
    assert Desired.read("") == Desired()
    large = submission(addresses="x" * LARGEST_BYTES)
    with pytest.raises(HoldfastError, match="Send code and small files only"):
        Desired().with_submission("large", large).text()


def test_the_same_submission_again_is_known() -> None:
    sent = {"fragments": {"main": {"replicas": 2}}, "timing": {"delay": "1 s"}}
    placed = {**sent, "fragments": {"main": {"replicas": ["a", "b"]}}, "servers": {}, "name": "x"}
    assert fits(sent, placed)
    assert not fits({**sent, "timing": {"delay": "2 s"}}, placed)
    assert not fits({**sent, "fragments": {"main": {"replicas": 3}}}, placed)
    assert not fits({**sent, "fragments": {"other": {"replicas": 2}}}, placed)
