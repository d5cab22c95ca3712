"""``holdfast explain``: from what nodes say of themselves to what holds an output up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.commands.explain import Graph, explain
from holdfast.plans.addresses import Addresses
from tests.processes.planned import planned

NOW = 1_700_000_100_000_000
GRAPH = Graph(
    {
        "load": ("entry-load",),
        "weather": ("entry-weather",),
        "means": ("first-1", "first-2"),
        "busy": ("main-1",),
    },
    {"load": (), "weather": (), "means": ("load",), "busy": ("means", "weather")},
    {"busy": 3_000_000},
)


def ago(seconds: float) -> int:
    return NOW - int(seconds * 1e6)


def world(**changed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All is well, except what is said."""
    well: dict[str, dict[str, Any]] = {
        "entry-load": {"boundary": ago(0.1), "state": "idle"},
        "entry-weather": {"boundary": ago(0.1), "state": "idle"},
        "first-1": replica(ago(0.3), load=ago(0.2)),
        "first-2": replica(ago(0.3), load=ago(0.2)),
        "main-1": replica(ago(0.5), means=ago(0.4), weather=ago(0.2)),
    }
    named = {name.replace("_", "-"): each for name, each in changed.items()}
    return {name: {**each, **named.get(name, {})} for name, each in well.items()}


def replica(boundary: int, **inputs: int) -> dict[str, Any]:
    return {
        "boundary": boundary,
        "state": "stable",
        "inputs": {name: {"boundary": stime} for name, stime in inputs.items()},
    }


def told(**changed: dict[str, Any]) -> tuple[str, bool]:
    lines, held_up = explain("busy", GRAPH, world(**changed), NOW)
    return "\n".join(lines), held_up


def test_all_is_well() -> None:
    text, held_up = told()
    assert text == "busy is stable up to 0.5 s ago; nothing holds it up."
    assert not held_up


def test_who_is_gone_and_stood_in_for_is_told_too() -> None:
    text, held_up = told(first_2={"error": "cannot be reached"})
    assert "first-2 does not answer (cannot be reached); others stand in." in text
    assert not held_up


def lacking(stream: str, since: int) -> dict[str, Any]:
    why = {"missing": {stream: since}, "share": 0.67}
    return {"state": "up_failure", "tentative": {"busy": why}, "boundary": since}


def test_a_source_that_does_not_answer() -> None:
    main_1 = lacking("weather", ago(9)) | {
        "inputs": {"means": {"boundary": ago(0.4)}, "weather": {"boundary": ago(9)}}
    }
    text, held_up = told(main_1=main_1, entry_weather={"error": "cannot be reached: refused"})
    assert held_up
    first, *rest = text.splitlines()
    assert first.startswith("busy is tentative: weather missing since 2023-11-14T22:14:51")
    assert "on 67 % of the usual data" in first
    assert rest == [
        "  weather, which it needs, was complete 9.0 s ago:",
        "    entry-weather does not answer: cannot be reached: refused",
    ]


def test_the_trouble_is_looked_for_through_fragments() -> None:
    quiet = {"boundary": ago(20), "idle": ["sensor-7"]}
    text, _ = told(
        main_1=lacking("load", ago(20))
        | {"inputs": {"means": {"boundary": ago(20)}, "weather": {"boundary": ago(0.1)}}},
        first_1=replica(ago(20), load=ago(20)),
        first_2=replica(ago(20), load=ago(20)),
        entry_load=quiet,
    )
    assert "  means, which it needs, was complete 20.0 s ago:" in text
    assert "    load, which it needs, was complete 20.0 s ago:" in text
    assert "entry-load has nothing newer than 20.0 s: its source is quiet or behind" in text
    assert "quiet are sensor-7" in text


def test_between_two_that_work_it_is_the_network() -> None:
    main_1 = lacking("weather", ago(9)) | {
        "inputs": {"means": {"boundary": ago(0.4)}, "weather": {"boundary": ago(9)}}
    }
    text, _ = told(main_1=main_1)
    assert "entry-weather has more of it, which does not arrive" in text
    text, _ = told(main_1=main_1, entry_weather={"cut": {"outgoing": ["main-1"], "incoming": []}})
    assert "entry-weather is cut off from main-1, on purpose" in text


def test_overload_corrections_and_problems_are_said() -> None:
    text, held_up = told(
        main_1=replica(ago(30), means=ago(0.3), weather=ago(0.3))
        | {
            "behind_s": 29.0,
            "input_ratio": 1.4,
            "state": "stabilization",
            "problems": ["cannot write: no space"],
        }
    )
    assert held_up
    assert "busy is stable, but 30.0 s behind." in text
    assert "main-1: cannot write: no space" in text
    assert "main-1 is overloaded: 29.0 s of its input wait for it" in text
    assert "main-1 has its inputs back and is correcting its results" in text


def test_a_source_ahead_of_the_clock_is_told_of_though_others_lack() -> None:
    """Whoever is ahead waits for all others, and they are named as what is missing."""
    ahead = "the newest tuple is 42 s ahead of this machine's clock"
    text, held_up = told(
        main_1=lacking("means", ago(0.4))
        | {"inputs": {"means": {"boundary": ago(0.4)}, "weather": {"boundary": ago(-42)}}},
        entry_weather={"boundary": ago(-42), "warnings": [ahead]},
    )
    assert held_up
    assert f"  entry-weather: {ahead}" in text
    assert "should be current soon" not in text


def test_the_command_asks_the_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(tmp_path, 'network = "network.py"\n[sources.load]\n[fragments.main]\n')
    Addresses.choose(found)
    assert main(["explain", str(found.path), "out"]) == 1
    assert "out has nobody who provides it." in capsys.readouterr().out
    assert main(["explain", str(found.path), "idle"]) == 1
    assert "has no output 'idle'; it has out" in capsys.readouterr().err
