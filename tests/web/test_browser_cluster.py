"""The page of a cluster of real servers: one is lost while one watches, and what it ran goes on
elsewhere."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.web_browser import Visitor, chromium
from benchmarks.web_setting import NETWORK
from holdfast.cluster.submitting import submit
from holdfast.errors import HoldfastError
from holdfast.web.serve import serving, watched
from tests.processes.clusters import TestCluster, running

pytestmark = [pytest.mark.thorough, pytest.mark.long, pytest.mark.timeout(1800)]
SECONDS = 300.0
NAMES = ["a", "b", "c"]
DEPLOYMENT = """
name = "monitoring"
network = "network.py"
chaos = true
[security]
token_file = "token"
[timing]
delay = "4 seconds"
[spark]
master = "local[1]"
[spark.config]
"spark.driver.memory" = "512m"
[sources.load]
from = "rate:100"
listen = "a"
[sources.pings]
from = "rate:100"
listen = "a"
[fragments.main]
replicas = 2
protection = "race"
[clients.recorder]
output = "busy"
sink = "jsonl:busy.jsonl"
listen = "a"
"""


def options(cluster: TestCluster, submission: str | None = None) -> argparse.Namespace:
    return argparse.Namespace(
        deployment=cluster.addresses["a"],
        host="127.0.0.1",
        port=0,
        name=[],
        submission=submission,
        security=None,
        token_file=cluster.token,
        tokens=None,
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TestCluster]:
    with running(tmp_path, NAMES, "--replace-after", "4 seconds") as found:
        found.wait(lambda: found.coordinator(*NAMES), "a coordinator", SECONDS)
        found.wait(lambda: len(found.status("a")["servers"]) == 3, "all three", SECONDS)
        found.wait(found.is_taken_in, "who is who", SECONDS)
        yield found


def submitted(cluster: TestCluster, directory: Path) -> dict[str, list[str]]:
    (directory / "network.py").write_text(NETWORK)
    (directory / "deployment.toml").write_text(DEPLOYMENT)

    return submit(directory / "deployment.toml", cluster.addresses["a"], print)[1]


def states(visitor: Visitor) -> dict[str, str]:
    return _replicas(visitor.state("live.nodes"))


def _replicas(nodes: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: each["state"] for name, each in nodes.items() if each["kind"] == "replica"}


def places(visitor: Visitor) -> dict[str, str]:
    """Where the replicas are, of one moment: the page hears of new ones between two looks."""
    live: dict[str, Any] = visitor.state("live")
    return {name: live["processes"][name]["server"] for name in _replicas(live["nodes"])}


def test_every_control_of_a_cluster_and_a_server_is_lost_while_one_watches(
    cluster: TestCluster, tmp_path: Path
) -> None:
    with pytest.raises(HoldfastError, match="submitted are: nothing"), watched(options(cluster)):
        pass
    submitted(cluster, tmp_path)
    with (
        watched(options(cluster, "monitoring")) as server,
        serving(server),
        chromium() as browser,
    ):
        visitor = Visitor(browser, server.address)
        visitor.come(server.link())
        page = visitor.page
        visitor.show("physical")
        visitor.wait(lambda: page.locator(".server").count() == 3, "every server")
        visitor.wait(lambda: list(states(visitor).values()) == ["stable"] * 2, "both", SECONDS)
        visitor.wait(lambda: page.evaluate("holdfast.view.kind") == "plane", "the plane")
        assert page.is_hidden("#problem")
        _change_replicas(visitor)
        visitor.show("physical")
        lost = next(at for at in places(visitor).values() if at != "a")
        cluster.kill(lost)
        visitor.wait_text(f".server[aria-label='Server {lost}']", "no answer")
        visitor.wait(lambda: lost not in places(visitor).values(), "another elsewhere", SECONDS)
        visitor.wait(lambda: list(states(visitor).values()) == ["stable"] * 2, "both", SECONDS)
        visitor.show("results")
        visitor.wait(lambda: page.locator("tbody tr").count() > 0, "rows")
        _drag_a_source(visitor, next(name for name in NAMES if name not in ("a", lost)))
        visitor.check()


def _change_replicas(visitor: Visitor) -> None:
    """One is added, what is useless collected, one removed, one moved, one killed."""
    page = visitor.page
    free = next(name for name in NAMES if name not in places(visitor).values())
    visitor.show("controls")
    page.select_option("select[name=fragment]", "main")
    page.select_option("select[name=place]", free)
    page.click("button:text-is('Add')")
    visitor.wait_text("aside", f"main-3 joins at {free}")
    visitor.wait(lambda: states(visitor).get("main-3") == "stable", "main-3", SECONDS)
    page.fill("input[name=cost]", "0")
    page.fill("input[name=least]", "3")
    visitor.wait(lambda: _collected(visitor), "what may go", SECONDS)
    visitor.show("physical")
    page.click("[data-process=main-3]")
    page.click("aside button:text-is('Remove')")
    visitor.wait_text("aside p[role=status]", "remove main-3: it ends; main-1, main-2 goes on")
    visitor.wait(lambda: "main-3" not in states(visitor), "the end of main-3", SECONDS)
    page.click("[data-process=main-2]")
    page.select_option("aside select[name=to]", free)
    page.click("aside button:text-is('Move')")
    visitor.wait_text("aside p[role=status]", f"main-4 joins at {free}")
    visitor.wait(lambda: set(states(visitor)) == {"main-1", "main-4"}, "the move", SECONDS)
    assert places(visitor)["main-4"] == free
    restarts = visitor.state("live.processes['main-1'].restarts")
    page.click("[data-process=main-1]")
    page.click("aside button:text-is('Kill')")
    again = "live.processes['main-1'].restarts"
    visitor.wait(lambda: visitor.state(again) > restarts, "restart", SECONDS)
    visitor.wait(lambda: list(states(visitor).values()) == ["stable"] * 2, "both", SECONDS)
    # What each of them did is told beside the controls.
    visitor.show("controls")
    visitor.wait(lambda: page.locator("ol.controls li").count() >= 5, "all that was done")
    assert "stable" in visitor.text("ol.controls li")


def _collected(visitor: Visitor) -> bool:
    """Nothing is collected while somebody has not heard of the replica that was added."""
    visitor.page.click("button:text-is('Collect now')")
    visitor.wait(lambda: bool(visitor.text(".pane p[role=status]")), "an answer")
    return "nothing may go" in visitor.text("aside")


def _drag_a_source(visitor: Visitor, server: str) -> None:
    """What follows is a submission of its own, in which the source is elsewhere."""
    page = visitor.page
    visitor.show("physical")
    page.drag_and_drop("[data-process=entry-pings]", f".server[aria-label='Server {server}'] h3")
    visitor.wait(lambda: page.evaluate("holdfast.viewName") == "edit", "the preview of it")
    visitor.wait(lambda: page.input_value("textarea") == NETWORK, "the source")
    assert page.input_value("[data-name='sources.pings.listen']") == server
    page.click("button:text-is('See what changes')")
    visitor.wait(
        lambda: f"sources.pings.listen: a → {server}" in visitor.text("aside"), "preview", SECONDS
    )
    assert "monitoring-2 is submitted and begins anew" in visitor.text("aside")
    page.click("button:text-is('Submit')")
    visitor.show("physical")
    visitor.wait(lambda: visitor.state("fixed.deployment") == "monitoring-2", "it", SECONDS)
    at = f"live.processes['entry-pings'].server === '{server}'"
    visitor.wait(lambda: bool(visitor.state(at)), "the source elsewhere", SECONDS)
    visitor.wait(lambda: list(states(visitor).values()) == ["stable"] * 2, "both", SECONDS)
