"""What flows, as nodes say it: tuples, and how large they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.cluster import rates
from holdfast.cluster.rates import LOOK_SECONDS, Rates
from holdfast.core.frame import Kind
from holdfast.deployment import Deployment
from holdfast.nodes.metrics import NodeMetrics

DEPLOYMENT = cast(
    Deployment,
    SimpleNamespace(
        endpoints={"entry-s": None, "main-1": None},
        sources={"s": SimpleNamespace(process="entry-s")},
        fragments={"main": SimpleNamespace(processes=["main-1"])},
    ),
)


class World:
    """A source of 100 tuples a second, of which one in ten comes out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.sizes: dict[str, dict[str, float]] = {}
        self.rates = Rates()
        monkeypatch.setattr(rates, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(rates, "node_status", self._status)

    def _status(self, deployment: Any, nodes: list[str], within_s: float) -> dict[str, Any]:
        come = int(100 * self.now)
        said: dict[str, dict[str, Any]] = {
            "entry-s": {"next_id": come},
            "main-1": {"outputs": {"o": come // 10}},
        }
        return {name: {**said[name], "tuple_bytes": self.sizes.get(name, {})} for name in nodes}

    def look(self) -> dict[str, float]:
        self.now += LOOK_SECONDS
        return dict(self.rates.look(DEPLOYMENT))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_while_nobody_knows_sizes_all_tuples_are_alike(world: World) -> None:
    assert world.look() == {}
    assert world.look() == pytest.approx({"s": 100.0, "o": 10.0})


def test_larger_tuples_cost_more_and_the_sum_stays(world: World) -> None:
    world.sizes = {"entry-s": {"s": 50.0}, "main-1": {"o": 600.0}}
    world.look()
    found = world.look()
    # 100 × 50 and 10 × 600 bytes a second, of 100 bytes each on the mean.
    assert found == pytest.approx({"s": 50.0, "o": 60.0})
    world.sizes = {"main-1": {"o": 600.0}}
    assert world.look() == pytest.approx(found), "what was known counts on"


def test_a_node_says_how_large_its_tuples_are() -> None:
    metrics = NodeMetrics("sizes", "replica")
    metrics.sent_tuples("o", "reader", Kind.STABLE, 10, 400)
    metrics.sent_tuples("o", "other", Kind.STABLE, 30, 800)
    metrics.sent_tuples("p", "other", Kind.BOUNDARY, 0, 0)
    assert metrics.tuple_bytes() == {"o": 30.0}
