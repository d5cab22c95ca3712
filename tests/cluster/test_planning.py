"""What is wrong with a network's file, and in which line of it."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.cluster import networks, planning
from holdfast.errors import HoldfastError
from holdfast.web.building import built


def mistake(path: Path, text: str) -> BaseException:
    path.write_text(text)
    try:
        runpy.run_path(str(path))
    except Exception as error:
        return error
    raise AssertionError("there is none in it")


def test_the_line_is_that_of_the_file_itself(tmp_path: Path) -> None:
    file = tmp_path / "network.py"
    found = planning.network_problem(mistake(file, "import json\n\njson.loads('{')\n"), file)
    assert found[0] == 3
    assert found[1].startswith("JSONDecodeError: Expecting property name")
    found = planning.network_problem(mistake(file, "x = 1\nx = (\n"), file)
    assert found == (2, "SyntaxError: '(' was never closed")


def test_a_line_that_is_spoken_of_is_none_of_the_file(tmp_path: Path) -> None:
    error = HoldfastError("line 7: of rows.csv has three columns")
    assert planning.network_problem(error, tmp_path / "network.py") == (None, str(error))


def test_the_page_shows_what_is_wrong_beside_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(file: Path, *rest: object) -> object:
        raise mistake(file, "\nraise ValueError('line 9: is empty')\n")

    monkeypatch.setattr(networks, "load_network", load)
    deployment = SimpleNamespace(network=tmp_path / "network.py", config={}, sql={})
    monkeypatch.setattr("holdfast.plans.plan.sql_settings", lambda deployment: {})
    problem = built(cast(Any, deployment), "", anew=False)["problem"]
    assert problem == {"where": "network", "line": 2, "text": "ValueError: line 9: is empty"}
