"""Of what a cluster runs each viewer is shown what they chose; results have pictures of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import web_views
from benchmarks.web_made_up import look, small, two_queries
from holdfast.errors import HoldfastError
from holdfast.web.clusters import SubmissionEye
from holdfast.web.looking import Looker
from holdfast.web.showing import Showing, Shown


class Eye:
    """What looks at a cluster."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.latest: dict[str, Any] = {"submissions": {"small", "two"}}

    def start(self) -> None: ...

    def close(self) -> None: ...


def test_each_is_watched_once_and_until_it_is_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Looker, "look", lambda self: look(self.deployment, 1))
    eyes: list[Eye] = []

    def shown(name: str) -> Shown:
        made = {"small": small, "two": two_queries}
        if name not in made:
            raise HoldfastError(f"{name!r} is not submitted")
        eyes.append(Eye(name))
        return Shown.of(made[name](tmp_path / name), cast(SubmissionEye, eyes[-1]))

    showing = Showing(shown("small"), shown)
    showing.first.watch.start()
    try:
        assert showing.of("") is showing.of("small") is showing.first
        two = showing.of("two")
        assert showing.of("two") is two
        assert [each.name for each in showing] == ["small", "two"]
        with pytest.raises(HoldfastError, match="'three' is not submitted"):
            showing.of("three")
        # Another one takes its place under another name; then it is withdrawn.
        eyes[1].name, eyes[1].latest = "two-2", {"submissions": {"small", "two-2"}}
        assert showing.of("two-2") is two
        eyes[1].latest = {"submissions": {"small"}}
        assert showing.of("") is showing.first
        assert [each.name for each in showing] == ["small"]
    finally:
        showing.close()


def test_one_deployment_is_shown_whatever_is_asked_for(tmp_path: Path) -> None:
    showing = Showing(Shown.of(small(tmp_path)))
    assert showing.of("other") is showing.first


def test_a_page_of_results_has_its_picture_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_views, "IMAGES", tmp_path)
    assert web_views.with_view("race", "# Race\n") == "# Race\n"
    (tmp_path / "web-race.png").touch()
    once = web_views.with_view("race", "# Race\n")
    assert once.endswith("(../images/web-race.png)\n")
    assert web_views.with_view("race", once) == once
    assert web_views.with_view("engine", "# Engine\n") == "# Engine\n"
