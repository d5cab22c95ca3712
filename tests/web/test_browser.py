"""The page in a real browser, of deployments that are made up: every view, keys, sizes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest
from playwright.sync_api import Browser

from benchmarks.web_browser import Visitor, chromium
from benchmarks.web_made_up import CITIES, look, mapped, small, two_queries, wide
from holdfast.client import Tuples, Undo
from holdfast.errors import HoldfastError
from holdfast.flight.roles import Role, make_token
from holdfast.web.clusters import SubmissionEye
from holdfast.web.looking import Looker
from holdfast.web.serve import WebServer, serving
from holdfast.web.showing import Showing, Shown

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


@pytest.mark.thorough
@pytest.mark.usefixtures("still")
def test_what_was_an_hour_ago_is_on_the_timeline_with_why_it_was_tentative(
    browser: Browser, tmp_path: Path
) -> None:
    deployment = small(tmp_path)
    with serving(WebServer(deployment)) as server:
        history, ago = server.watch.history, time.time() - 3500.0
        history.in_state("main-1", ago - 5.0, "up_failure")
        history.came("busy", ago, "tentative", 12, 2.0, ["load missing since noon"])
        history.happened(ago, "main-1", "input lost", "warning")
        visitor = Visitor(browser, server.address)
        visitor.come(server.link())
        visitor.show("timeline")
        page = visitor.page
        visitor.wait_text("aside", "nothing in sight was tentative")
        page.locator("canvas").focus()
        page.keyboard.press("Home")
        visitor.wait_text("aside", "busy: load missing since noon (12 tuples)")
        visitor.wait_text("aside ol", "input lost")
        # Somebody who comes later, or loads it again, sees the same.
        page.reload()
        page.wait_for_selector("canvas")
        page.locator("canvas").focus()
        page.keyboard.press("Home")
        visitor.wait_text("aside", "busy: load missing since noon (12 tuples)")
        # The pointer chooses a moment, the wheel moves.
        page.mouse.move(400, 200)
        visitor.wait(lambda: page.evaluate("holdfast.view.at") is not None, "a moment")
        before = page.evaluate("holdfast.view.end")
        page.mouse.wheel(0, 500)
        visitor.wait(lambda: page.evaluate("holdfast.view.end") > before, "a later time")
        visitor.check()


@pytest.mark.thorough
@pytest.mark.usefixtures("still")
def test_all_queries_of_a_network_are_drawn_at_once(browser: Browser, tmp_path: Path) -> None:
    with serving(WebServer(two_queries(tmp_path))) as server:
        visitor = Visitor(browser, server.address)
        visitor.come(server.link())
        page = visitor.page
        visitor.wait(lambda: page.locator("svg .box").count() == 8, "operators and outputs")
        assert page.locator("svg .area").count() == 2
        for name in ("output busy", "output slow"):
            assert page.locator(f"[data-name='{name}']").count() == 1
        page.click("[data-name=near_1]")
        visitor.wait_text("aside", "slow servers")
        visitor.show("timeline")
        assert visitor.state("fixed.outputs") == {"busy": "op_3", "slow": "near_1"}
        visitor.show("results")
        visitor.wait(lambda: page.locator("select option").count() >= 2, "both outputs")
        visitor.check()


class Eye:
    """What looks at a cluster that runs two things."""

    latest: ClassVar[dict[str, Any]] = {
        "servers": {},
        "missing": {},
        "coordinator": None,
        "unmanaged": "",
        "submissions": {"small": {"note": ""}, "two": {"note": ""}},
    }

    def __init__(self, name: str) -> None:
        self.name = name

    def start(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.thorough
def test_a_viewer_chooses_among_what_a_cluster_runs(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Looker, "look", lambda self: replace(look(self.deployment, 1), cluster=Eye.latest)
    )

    def shown(name: str) -> Shown:
        made = {"small": small, "two": two_queries}
        if name not in made:
            raise HoldfastError(f"{name!r} is not submitted")
        return Shown.of(made[name](tmp_path / name), cast(SubmissionEye, Eye(name)))

    showing = Showing(shown("small"), shown)
    with serving(WebServer(showing.first.watch.deployment, showing=showing)) as server:
        visitors = [Visitor(browser, server.address) for _ in range(2)]
        for visitor in visitors:
            visitor.come(server.link())
        one, other = visitors
        other.page.select_option("#submission", "two")
        other.wait(lambda: other.state("fixed.deployment") == "two", "the other one")
        other.wait(lambda: other.page.locator("svg .box").count() == 8, "its query")
        # The one who did not choose is shown what was shown before; a reload keeps the choice.
        assert one.state("fixed.deployment") == "small"
        other.page.reload()
        other.wait(lambda: other.state("fixed.deployment") == "two", "the same again")
        assert other.page.input_value("#submission") == "two"
        # What one asks for is meant for what one sees.
        other.show("physical")
        other.page.click("[data-process=near-1]")
        other.page.click("aside button:text-is('Kill')")
        other.show("controls")
        other.wait_text("ol.controls", "kill near-1")
        one.show("controls")
        assert one.page.locator("ol.controls li").count() == 0
        # What is not there is not waited for: what was shown before is shown again.
        other.page.evaluate("holdfast.choose('gone')")
        other.wait(lambda: str(other.state("stream.url")).endswith("?of=two"), "the one before")
        other.wait(lambda: other.state("stream.readyState") == 1, "that it is connected")
        for visitor in visitors:
            visitor.errors[:] = [each for each in visitor.errors if "409" not in each]
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
