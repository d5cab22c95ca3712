"""The page in a real browser, of deployments that are made up: every view, keys, sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Browser

from benchmarks.web_browser import Visitor, chromium
from benchmarks.web_made_up import CITIES, look, mapped, small, wide
from holdfast.client import Tuples, Undo
from holdfast.flight.roles import Role, make_token
from holdfast.web.looking import Looker
from holdfast.web.serve import WebServer, serving

OPERATORS, SERVERS = 200, 1000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked: the tests say what was seen."""
    monkeypatch.setattr(Looker, "look", lambda self: look(self.deployment, 1))


@pytest.mark.thorough
@pytest.mark.usefixtures("still")
def test_every_view_shows_what_it_was_told(browser: Browser, tmp_path: Path) -> None:
    deployment = small(tmp_path, OPERATORS)
    with serving(WebServer(deployment)) as server:
        visitor = Visitor(browser, server.address)
        visitor.come(server.link())
        page = visitor.page
        # The query: all of it is drawn, and a click says what an operator does.
        visitor.wait(lambda: page.locator("svg .box").count() == OPERATORS + 2, "every operator")
        page.locator("[data-name=op_3]").click()
        visitor.wait_text("aside", "operator 3 of server")
        page.locator("[data-name=op_4]").focus()
        page.keyboard.press("Enter")
        visitor.wait_text("aside", "operator 4 of server")
        # The machines, by a key.
        page.keyboard.press("2")
        visitor.wait(lambda: page.locator("[data-process]").count() == 4, "every process")
        page.locator("[data-process=main-1]").click()
        visitor.wait_text("aside", "Kill its JVM")
        # Results, and a tentative row that is taken back.
        view = server.watch._views["busy"]
        table = {"stime": pa.array([1_700_000_000_000_000], pa.timestamp("us")), "n": [5]}
        view.apply(Tuples(True, 0, pa.table(table)), 1_700_000_001.0)
        view.apply(Tuples(False, 1, pa.table({**table, "n": [77]})), 1_700_000_001.0)
        visitor.show("results")
        visitor.wait(lambda: "77" in visitor.text("tr.tentative"), "the tentative row")
        view.apply(Undo(1 << 60), 1_700_000_002.0)
        view.apply(Tuples(True, 1, pa.table({**table, "n": [78]})), 1_700_000_002.0)
        visitor.wait(lambda: "78" in visitor.text("tr.corrected"), "its correction")
        assert page.locator("tr.tentative").count() == 0
        # The timeline: what happened is on it, and its keys move it.
        server.watch.history.happened(visitor.state("now"), "main-1", "something happened", "error")
        visitor.show("timeline")
        visitor.wait_text("aside", "something happened")
        page.locator("canvas").focus()
        page.keyboard.press("Home")
        visitor.wait(lambda: page.evaluate("holdfast.view.end") is not None, "an hour ago")
        page.keyboard.press("End")
        visitor.wait(lambda: page.evaluate("holdfast.view.end") is None, "the present")
        # Light and dark; signing out ends it.
        page.keyboard.press("t")
        assert page.evaluate("document.documentElement.classList.contains('light')")
        visitor.check()
        page.click("#sign-out")
        page.wait_for_selector("#sign-in-token")
        visitor.check()


@pytest.mark.usefixtures("still")
def test_who_only_reads_sees_no_controls(browser: Browser, tmp_path: Path) -> None:
    deployment = small(tmp_path)
    with serving(WebServer(deployment)) as server:
        visitor = Visitor(browser, server.address)
        page = visitor.page
        page.goto(server.address)
        page.fill("#sign-in-name", "ada")
        page.fill("#sign-in-token", "read:wrong")
        page.keyboard.press("Enter")
        visitor.wait_text("form", "do not go together")
        visitor.errors.clear()  # a browser says of itself that it was refused
        secret = deployment.security.read().tokens[Role.READ]
        page.fill("#sign-in-token", make_token(Role.READ, secret, "ada"))
        page.keyboard.press("Enter")
        page.wait_for_selector("#tab-physical")
        assert page.locator("#tab-controls").count() == 0
        assert page.locator("#tab-edit").count() == 0
        visitor.show("physical")
        page.locator("[data-process=main-1]").click()
        visitor.wait_text("aside h2", "main-1")
        assert "Kill" not in visitor.text("aside")
        # Nothing of the session is there for a script to take.
        assert page.evaluate("document.cookie") == ""
        assert all(secret not in text for text in (page.content(), visitor.page.url))
        visitor.check()


@pytest.mark.thorough
@pytest.mark.usefixtures("still")
def test_servers_with_coordinates_are_on_a_map(browser: Browser, tmp_path: Path) -> None:
    deployment = mapped(tmp_path)
    with serving(WebServer(deployment)) as server:
        visitor = Visitor(browser, server.address)
        visitor.come(server.link())
        visitor.show("physical")
        page = visitor.page
        visitor.wait(lambda: page.locator(".server").count() == len(CITIES), "every city")
        assert page.evaluate("holdfast.view.kind") == "map"
        boxes = {
            name: page.locator(f".server[aria-label='Server {name}']").bounding_box()
            for name in CITIES
        }
        found = {name: box for name, box in boxes.items() if box is not None}
        # West is left, south is below, and no card lies on another.
        assert found["seattle"]["x"] < found["berlin"]["x"] < found["tokyo"]["x"]
        assert found["berlin"]["y"] < found["nairobi"]["y"] < found["sydney"]["y"]
        for one, other in itertools.combinations(found.values(), 2):
            assert (
                one["x"] + one["width"] <= other["x"]
                or other["x"] + other["width"] <= one["x"]
                or one["y"] + one["height"] <= other["y"]
                or other["y"] + other["height"] <= one["y"]
            )
        visitor.check()


@pytest.mark.thorough
@pytest.mark.usefixtures("still")
def test_a_thousand_servers_are_shown_as_far_as_they_are_in_sight(
    browser: Browser, tmp_path: Path
) -> None:
    deployment = wide(tmp_path, SERVERS)
    with serving(WebServer(deployment)) as server:
        visitor = Visitor(browser, server.address)
        visitor.come(server.link())
        visitor.show("physical")
        page = visitor.page
        visitor.wait(lambda: page.locator(".server").count() > 5, "servers")
        assert page.locator(".server").count() < 200
        page.locator(".pane").evaluate("pane => { pane.scrollTop = pane.scrollHeight; }")
        visitor.wait(lambda: page.locator("[aria-label='Server server-0999']").count() == 1, "end")
        page.fill("input[type=search]", "server-0500")
        visitor.wait(lambda: page.locator(".server").count() == 1, "the one that is looked for")
        visitor.check()
