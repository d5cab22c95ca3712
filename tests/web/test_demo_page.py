"""``make demo ARGS=--web``: the demonstration on a page, whose network is not to be changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from benchmarks.web_made_up import small
from benchmarks.web_requests import Browser
from holdfast.demo.run import _on_a_page


class Said:
    """A view that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def test_the_demonstration_says_where_it_is_shown(tmp_path: Path) -> None:
    view = Said()
    with _on_a_page(small(tmp_path), cast(Any, view), True):
        (line,) = view.lines
        address, _, code = line.partition("http://127.0.0.1:")[2].partition("/#code=")
        browser = Browser(int(address))
        browser.keep(browser.post("/api/sign-in", {"code": code}))
        session = browser.get("/api/session").json
        assert (session["operate"], session["edit"]) == (True, False)
        answer = browser.get("/api/edit")
        assert answer.status == 409
        assert "batch job" in answer.json["said"]


def test_without_being_asked_there_is_no_page(tmp_path: Path) -> None:
    view = Said()
    with _on_a_page(small(tmp_path), cast(Any, view), False):
        assert view.lines == []
