"""A short pass of the page in a real browser, over real nodes in this process that one makes fail:
``test_browser_deployment.py`` has the long one, of a deployment with a supervisor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.web_browser import Visitor, chromium
from benchmarks.web_setting import NETWORK
from holdfast.durable import write_whole
from holdfast.web.serve import WebServer, serving
from tests.processes.copies import Hosted

DEPLOYMENT = """
name = "monitoring"
network = "network.py"
chaos = true
[timing]
delay = "1 second"
[sources.load]
from = "rate:100"
[sources.pings]
from = "rate:100"
[fragments.main]
replicas = 2
"""


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[Hosted]:
    """Two sources and two replicas; nobody supervises them, for they are no processes."""
    made = Hosted(tmp_path, NETWORK, DEPLOYMENT)
    write_whole(made.deployment.data / "processes.json", b"{}")
    entries = [made._host(name)._entry(name) for name in ("entry-load", "entry-pings")]
    for entry in entries:
        entry.start()
    made.start("main-1", "main-2")
    try:
        yield made
    finally:
        made.stop(*list(made.copies))
        for entry in entries:
            entry.stop()


@pytest.mark.thorough
def test_one_watches_real_nodes_cuts_them_off_and_loses_one(world: Hosted) -> None:
    with serving(WebServer(world.deployment)) as server, chromium() as browser:
        visitor = Visitor(browser, server.address)
        visitor.come(server.link())
        page = visitor.page
        # The query, with rates; the results, as they come.
        visitor.wait(lambda: " tuples/s" in visitor.text("[data-name=load]"), "a rate")
        page.click("[data-name=aggregate_1]")
        visitor.wait_text("aside", "state on main-1")
        visitor.show("results")
        visitor.wait(lambda: page.locator("tbody tr").count() > 0, "rows")
        # The source is cut off by hand, and results are tentative until it is healed.
        visitor.show("controls")
        for replica in ("main-1", "main-2"):
            page.select_option("select[name=from]", "entry-pings")
            page.select_option("select[name=to]", replica)
            page.click("button:text-is('Cut')")
            visitor.wait_text("aside", f"cut entry-pings – {replica}")
        visitor.show("results")
        visitor.wait(lambda: page.locator("tr.tentative").count() > 0, "tentative rows")
        visitor.show("timeline")
        visitor.wait_text("aside", "pings missing since")
        visitor.show("controls")
        page.click("button:text-is('Heal every link')")
        visitor.show("results")
        visitor.wait(lambda: page.locator("tr.corrected").count() > 0, "their corrections")
        # A replica is lost while one watches; the page is loaded again meanwhile.
        visitor.show("physical")
        world.stop("main-2")
        visitor.wait_text("[data-process=main-2]", "gone")
        page.reload()
        visitor.wait(lambda: "gone" in visitor.text("[data-process=main-2]"), "the same again")
        visitor.check()
