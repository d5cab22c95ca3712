"""Prometheus metrics of a server of a cluster: made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class ClusterMetrics(Collector):
    """What ``holdfast cluster status`` says, as numbers.

    What only the coordinator knows is 0, or left out, at the others.
    """

    def __init__(self, status: Callable[[], dict[str, Any]], moved: Callable[[], int]) -> None:
        self._status = status
        self._moved = moved

    def describe(self) -> list[Metric]:
        """Nothing before it is asked for: the server may not be known to others yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        found = self._status()
        yield from self._servers(found)
        yield from _submissions(found["submissions"])
        moves = CounterMetricFamily(
            "holdfast_cluster_moves", "Replicas that this server has moved as the coordinator"
        )
        moves.add_metric([], self._moved())
        yield moves

    def _servers(self, found: dict[str, Any]) -> Iterator[Metric]:
        own = found["servers"][found["asked"]]
        servers = GaugeMetricFamily(
            "holdfast_cluster_servers", "Servers that answer, and that do not", labels=["state"]
        )
        servers.add_metric(["there"], len(found["servers"]))
        servers.add_metric(["missing"], len(found["missing"]))
        yield servers
        coordinates = found["coordinator"] == own["address"]
        for name, text, value in (
            ("coordinates", "1 at the server that coordinates", coordinates),
            ("managed", "0 while nobody coordinates, by what it knows", not found["unmanaged"]),
            ("term", "The number of the election that counts here", found["term"]),
            ("cpu", "How busy the processors of the server are, from 0 to 1", own["cpu"]),
            ("memory", "How much of its memory is used, from 0 to 1", own["memory"]),
        ):
            yield GaugeMetricFamily(f"holdfast_cluster_{name}", text, value=float(value))
        names = {card["address"]: name for name, card in found["servers"].items()}
        delays = GaugeMetricFamily(
            "holdfast_cluster_delay_seconds", "One way to another server", labels=["server"]
        )
        for address, delay_ms in own["delays_ms"].items():
            if delay_ms is not None and address in names:
                delays.add_metric([names[address]], delay_ms / 1e3)
        yield delays


def _submissions(submissions: dict[str, Any]) -> Iterator[Metric]:
    replicas = GaugeMetricFamily(
        "holdfast_cluster_replicas",
        "Replicas of a fragment of what was submitted",
        labels=["submission", "fragment"],
    )
    cost = GaugeMetricFamily(
        "holdfast_cluster_network_cost",
        "What its streams cost, in tuples a second × milliseconds, where it is collected",
        labels=["submission"],
    )
    collected = CounterMetricFamily(
        "holdfast_cluster_collected",
        "Feeds and replicas that were collected, feeds that were revived, replicas added again",
        labels=["submission", "kind"],
    )
    for name, each in submissions.items():
        for fragment, servers in each["placed"].items():
            replicas.add_metric([name, fragment], len(servers))
        if "cost" in each:
            cost.add_metric([name], each["cost"])
            for kind, count in each["collected"].items():
                collected.add_metric([name, kind], count)
    yield from (replicas, cost, collected)
