"""The page of a deployment that really runs: every control, an edit that fails and one that is
submitted, a process lost while one watches, a reload in the middle, a restart with the page open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.web_browser import Visitor, chromium
from benchmarks.web_setting import NETWORK, run, running, write_deployment
from holdfast.deployment import Deployment
from holdfast.web.serve import WebServer, serving

pytestmark = [pytest.mark.thorough, pytest.mark.long, pytest.mark.timeout(1800)]
SECONDS = 300.0


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One deployment for all tests of this file."""
    with running(write_deployment(tmp_path_factory.mktemp("watched"))) as found:
        yield found


@pytest.fixture(scope="module")
def visitor(deployment: Deployment) -> Iterator[Visitor]:
    """One page of it."""
    with (
        serving(WebServer(deployment)) as server,
        chromium() as browser,
    ):
        found = Visitor(browser, server.address)
        found.come(server.link())
        yield found


def node(visitor: Visitor, name: str) -> dict[str, Any]:
    found: dict[str, Any] = visitor.state(f"live.nodes['{name}']") or {}
    return found


def arrived(visitor: Visitor, kind: str) -> int:
    """How many results of a kind the page knows of."""
    bins = visitor.state("arrivals['busy']") or []
    return sum(int(each[2]) for each in bins if each[1] == kind)


def wait_state(visitor: Visitor, name: str, *states: str) -> None:
    visitor.wait(lambda: node(visitor, name).get("state") in states, f"{name} {states}", SECONDS)


def wait_results(visitor: Visitor, kind: str) -> None:
    """More of them than there are now."""
    before = arrived(visitor, kind)
    visitor.wait(lambda: arrived(visitor, kind) > before, f"{kind} results", SECONDS)


def control(visitor: Visitor, title: str, process: str) -> None:
    visitor.show("physical")
    visitor.page.click(f"[data-process={process}]")
    visitor.wait_text("aside h2", process)
    visitor.page.click(f"aside button:text-is('{title}')")


def test_the_views_are_alive(visitor: Visitor) -> None:
    wait_state(visitor, "main-1", "stable")
    wait_state(visitor, "main-2", "stable")
    wait_results(visitor, "stable")
    page = visitor.page
    visitor.show("logical")
    visitor.wait(lambda: "tuples/s" in visitor.text("[data-name=load]"), "a rate")
    page.click("[data-name=aggregate_1]")
    visitor.wait_text("aside", "state on main-1")
    visitor.wait_text("aside", "open windows")
    visitor.wait_text("aside", "latency on main-1")
    assert "in another orderthe same" in visitor.text("aside")
    visitor.show("results")
    visitor.wait(lambda: page.locator("tbody tr").count() >= 8, "rows")
    assert "readings" in visitor.text("thead")
    visitor.show("physical")
    visitor.wait_text("[data-process=main-1]", "MB")
    visitor.wait_text("[data-process=main-1]", "· u ")
    visitor.check()


def test_a_link_is_cut_and_healed_and_the_page_says_why_results_were_tentative(
    visitor: Visitor,
) -> None:
    visitor.show("controls")
    page = visitor.page
    for replica in ("main-1", "main-2"):
        page.select_option("select[name=from]", "entry-pings")
        page.select_option("select[name=to]", replica)
        page.click("button:text-is('Cut')")
        visitor.wait_text("aside", f"cut entry-pings – {replica}")
    wait_results(visitor, "tentative")
    visitor.show("timeline")
    visitor.wait_text("aside", "pings missing since")
    visitor.show("results")
    visitor.wait(lambda: page.locator("tr.tentative").count() > 0, "tentative rows")
    visitor.show("controls")
    page.click("button:text-is('Heal every link')")
    wait_results(visitor, "corrected")
    visitor.wait(lambda: "corrected" in visitor.text("aside li"), "what healing did")
    wait_state(visitor, "main-1", "stable")
    wait_state(visitor, "main-2", "stable")
    visitor.check()


def test_a_process_is_killed_while_one_watches_and_the_page_is_loaded_again(
    visitor: Visitor,
) -> None:
    restarts = visitor.state("live.processes['main-2'].restarts")
    control(visitor, "Kill", "main-2")
    wait_state(visitor, "main-2", "gone")
    visitor.wait_text("[data-process=main-2]", "gone")
    events = len(visitor.state("events"))
    visitor.page.reload()
    visitor.page.wait_for_selector("#tab-timeline")
    visitor.wait(lambda: len(visitor.state("events")) >= events, "what happened before")
    wait_results(visitor, "stable")  # the other one goes on
    visitor.wait(
        lambda: visitor.state("live.processes['main-2'].restarts") > restarts, "restart", SECONDS
    )
    wait_state(visitor, "main-2", "stable")
    visitor.check()


def test_a_jvm_is_killed_alone(visitor: Visitor) -> None:
    restarts = visitor.state("live.processes['main-1'].restarts")
    control(visitor, "Kill its JVM", "main-1")
    visitor.wait(
        lambda: visitor.state("live.processes['main-1'].restarts") > restarts, "restart", SECONDS
    )
    wait_state(visitor, "main-1", "stable")
    visitor.check()


def test_a_process_is_paused_slowed_and_goes_on(visitor: Visitor) -> None:
    control(visitor, "Pause", "main-1")
    wait_state(visitor, "main-1", "paused")
    control(visitor, "Resume", "main-1")
    wait_state(visitor, "main-1", "stable")
    control(visitor, "Slow for 10 s", "main-1")
    visitor.wait_text("aside p[role=status]", "it has 10% of its time for 10 s")
    visitor.show("timeline")
    visitor.wait(
        lambda: "has its whole time again" in visitor.text("aside"), "the end of it", SECONDS
    )
    wait_state(visitor, "main-1", "stable")
    visitor.check()


def test_an_edit_that_cannot_be_built_is_shown_with_its_line(visitor: Visitor) -> None:
    visitor.show("edit")
    page = visitor.page
    visitor.wait(lambda: page.input_value("textarea") == NETWORK, "the source")
    page.fill("textarea", NETWORK.replace('"cpu > 5"', '"cpus > 5"'))
    page.click("button:text-is('See what changes')")
    line = 1 + NETWORK[: NETWORK.index("cpu > 5")].count("\n")
    visitor.wait(lambda: page.locator(".wrong").count() == 1, "the line that is wrong", SECONDS)
    # A call that spans lines is where Python says it is: its first line, or that of its method.
    assert abs(int(visitor.text(".wrong")) - line) <= 1
    assert "cpus" in visitor.text("aside p[role=status]")
    # It stands beside the line, too, until that is changed.
    mistake, at = page.locator(".mistake").bounding_box(), page.locator(".wrong").bounding_box()
    assert mistake is not None
    assert at is not None
    assert abs(mistake["y"] - at["y"]) < at["height"]
    assert "cpus" in visitor.text(".mistake")
    assert page.is_disabled("button:text-is('Submit')")
    # Another query cannot go on from what is kept of this one.
    page.fill("textarea", NETWORK.replace("cpu > 5", "cpu > 6"))
    assert page.is_hidden(".mistake")
    page.click("button:text-is('See what changes')")
    visitor.wait(
        lambda: "cannot go on from what is kept" in visitor.text("aside p[role=status]"),
        "the refusal",
        SECONDS,
    )
    visitor.check()


def test_an_edit_is_submitted_and_the_page_stays_open_meanwhile(visitor: Visitor) -> None:
    # What was written is still there after a look at another view, until one starts over.
    visitor.show("logical")
    visitor.show("edit")
    page = visitor.page
    visitor.wait(lambda: "cpu > 6" in page.input_value("textarea"), "what was written")
    page.click("button:text-is('Start over')")
    visitor.wait(lambda: page.input_value("textarea") == NETWORK, "the source")
    page.fill("[data-name='timing.delay']", "3 seconds")
    page.click("button:text-is('See what changes')")
    visitor.wait(
        lambda: "timing.delay: 2 seconds → 3 seconds" in visitor.text("aside"), "preview", SECONDS
    )
    page.click("button:text-is('Submit')")
    visitor.show("timeline")
    visitor.wait(lambda: "the change runs" in visitor.text("aside"), "the change", 2 * SECONDS)
    visitor.wait(lambda: visitor.state("fixed.delay_s") == 3, "another X", SECONDS)
    wait_state(visitor, "main-1", "stable")
    wait_results(visitor, "stable")
    visitor.check()


def choose(visitor: Visitor, **chosen: str) -> None:
    for name, value in chosen.items():
        visitor.page.select_option(f"select[name={name}]", value)


def test_a_replica_is_added_moved_and_removed(visitor: Visitor) -> None:
    visitor.show("controls")
    page = visitor.page
    choose(visitor, fragment="main", place="127.0.0.1")
    page.click("button:text-is('Add')")
    visitor.wait_text("aside", "main-3 joins at 127.0.0.1")
    wait_state(visitor, "main-3", "stable")
    choose(visitor, replica="main-3", place="127.0.0.1")
    page.click("button:text-is('Move to the place')")
    visitor.wait_text("aside", "a new replica joins")
    wait_state(visitor, "main-4", "stable")
    visitor.wait(lambda: not node(visitor, "main-3"), "the end of main-3", SECONDS)
    choose(visitor, replica="main-4")
    page.click("button:text-is('Remove')")
    visitor.wait(lambda: not node(visitor, "main-4"), "the end of main-4", SECONDS)
    visitor.show("physical")
    visitor.wait(lambda: page.locator("[data-process]").count() == 5, "those that are left")
    visitor.show("timeline")
    visitor.wait_text("aside", "main-4 has taken the place of main-3")
    visitor.check()


def test_the_page_stays_open_while_the_deployment_restarts(
    visitor: Visitor, deployment: Deployment
) -> None:
    visitor.show("timeline")
    run("down", str(deployment.path))
    visitor.wait(lambda: "nobody looks after" in visitor.text("#problem"), "that it is down")
    wait_state(visitor, "main-1", "gone")
    run("up", str(deployment.path), "--detach", "--wait", "600")
    visitor.wait(lambda: visitor.page.is_hidden("#problem"), "that it is up", SECONDS)
    wait_state(visitor, "main-1", "stable")
    wait_results(visitor, "stable")
    visitor.check()
