"""What the benchmark ``shards`` makes of what it measured: bars that are missed, and its page."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks import shards
from benchmarks.record import recorded
from benchmarks.shards_bars import missed
from benchmarks.shards_bursts import Cost, Ratios
from benchmarks.shards_delivery import Delivered, Killed, _victims
from benchmarks.shards_page import page_of
from benchmarks.shards_reader import EXACTLY, LEAST, MOST
from benchmarks.shards_ring import READINGS, of_entry
from benchmarks.web_views import RESULTS, with_view

MACHINE = {"cores": 2, "cpu": "made-up processor", "memory_gib": 8, "date": "2026-01-02"}
ENGINE: dict[str, Any] = {
    "throughput_by_shards": {"1": 1.0, "2": 0.94, "4": 0.9},
    "tuples_per_second": {"1": 10, "2": 9, "4": 8},
    "shards_identical": True,
}
RING: dict[str, Any] = {
    "takeover_gap_ms": 10.0,
    "takeover_gaps_ms": [10.0, 3_100.5],
    "reinstate_gap_ms": 20.0,
    "reinstate_gaps_ms": [20.0, 30.0],
    "usual_ms": 200.0,
    "kills": 10,
    "tuples": 1_000,
    "results": 100,
    "lost": {EXACTLY: 0},
    "doubled": {EXACTLY: 2},
    "identical": False,
    "entry_lost": 3,
    "entry_doubled": 0,
    "kills_at_work": 9,
    "ring_messages": 1.5,
    "bytes_per_tuple_record": 40.0,
    "bytes_over_mirroring": {"49": 1.2, "449": 0.1},
    "open_windows": 100_000,
}
RESCALED: dict[str, Any] = {
    "rescale_gap_ms": 3_000.0,
    "rescale_gaps_ms": [3_000.0],
    "rescale_took_seconds": [5.0],
    "rescaled": [1, 2],
    "rescale_lost": 1,
    "rescale_doubled": 0,
    "rescale_identical": True,
    "rescale_entry_lost": 0,
    "rescale_entry_doubled": 1,
}


def delivered(directory: Path, *given: object) -> Delivered:
    """In the place of the runs of processes."""
    exactly = Ratios({"small": 1.2}, {"small": [1.0, 1.2, 1.3]}, {"small": 1.1})
    least = Ratios({"small": 1.5}, {"small": [1.4, 1.5, 1.6]}, {"small": 1.4})
    seconds = {"small": {EXACTLY: 0.5, LEAST: 0.6, MOST: 0.4}}
    costs = {
        2: Cost({EXACTLY: exactly, LEAST: least}, seconds),
        4: Cost({EXACTLY: exactly}, seconds),
    }
    lost = {MOST: Killed(10, 5_000, 900, 0), LEAST: Killed(10, 5_000, 0, 3)}
    return Delivered(costs, 4.5, lost)


@pytest.fixture
def delivery(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(shards, "compare_and_kill", delivered)
    figures, well = shards.delivery_figures(Path(), shards.QUICK)
    # At least once may double, at most once may lose.
    assert well
    return figures


def test_bars_that_are_missed_are_named_with_what_was_found_and_wanted(
    delivery: dict[str, Any],
) -> None:
    assert missed("engine", ENGINE) == ["throughput_by_shards of 2: 0.94, wanted at least 0.95"]
    assert missed("ring", RING) == [
        "takeover_gaps_ms: 3100.5, wanted at most X, 3,000",
        "doubled exactly-once: 2, wanted 0",
        "identical: the results are not those of one engine",
        "entry_lost: 3, wanted 0",
        "bytes_over_mirroring of 49 bytes: 1.2, wanted below 1",
    ]
    assert missed("delivery", delivery) == [
        f"exactly_over_at_most of {number} shards, small tuples: 1.2, wanted at most 1.1"
        for number in (2, 4)
    ]
    worse = delivery | {"doubled": {MOST: 1, LEAST: 0}}
    assert missed("delivery", worse)[-1] == "doubled at-most-once: 1, wanted 0"
    assert missed("rescale", RESCALED) == [
        "rescale_lost: 1, wanted 0",
        "rescale_entry_doubled: 1, wanted 0",
    ]
    assert missed("scale", {}) == []


def test_the_exit_code_is_about_what_is_lost_or_different_and_not_about_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shards, "compare_and_kill", delivered)
    assert shards.main(["--quick", "--only", "delivery"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["least_over_at_most"] == {"2": {"small": 1.5}}
    assert printed["delivery_kills"] == {MOST: 10, LEAST: 10}
    assert len(printed["missed"]) == 2

    def doubling(*given: object) -> Delivered:
        found = delivered(Path())
        return Delivered(found.costs, 4.5, found.killed | {MOST: Killed(10, 5_000, 900, 1)})

    monkeypatch.setattr(shards, "compare_and_kill", doubling)
    assert shards.main(["--quick", "--only", "delivery"]) == 1


def test_every_turn_kills_each_kind_once() -> None:
    names = ["most2", "least2"]
    assert [_victims(names, 2, turn) for turn in range(4)] == [
        ["drivers.1"],
        ["drivers.2"],
        ["most2-1", "least2-1"],
        ["drivers.1"],
    ]


def test_each_part_is_recorded_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.record.RESULTS", tmp_path)
    monkeypatch.setattr(shards, "describe_machine", lambda: MACHINE)

    def told(part: str, directory: Path, lengths: shards.Lengths) -> tuple[dict[str, Any], bool]:
        if part == "delivery":
            return shards.delivery_figures(directory, lengths)
        return copy.deepcopy({"engine": ENGINE, "ring": RING, "rescale": RESCALED}[part]), True

    monkeypatch.setattr(shards, "figures_of", told)
    monkeypatch.setattr(shards, "compare_and_kill", delivered)
    for part, *options in (("engine", "--quick"), ("ring",), ("delivery", "--quick"), ("ring",)):
        shards.main([*options, "--only", part, "--record"])
    shards.main(["--only", "engine"])
    known = recorded("shards")["parts"]
    assert list(known) == ["engine", "ring", "delivery"]
    page = (tmp_path / "shards.md").read_text()
    assert page == with_view("shards", page_of(known))
    quick, ring = "`make bench BENCH=shards ARGS='--quick --only engine'`", "ARGS='--only ring'`"
    assert f"| Throughput in one process and in shards | short | {quick} | 2026-01-02 |" in page
    assert f"The short form, {quick}, on 2 cores of an made-up processor" in page
    assert f"The full form, `make bench BENCH=shards {ring}" in page
    assert "| Another number of shards, at 3,000 tuples a second | not recorded yet |" in page
    # What was missed, what at least once costs, and how often each kind was killed.
    assert "wanted at least 0.95 |" in page
    least = (
        "| time of at least once over at most once, 2 shards, small tuples | 1.5, the median of "
    )
    assert f"{least}1.4, 1.5, 1.6 (0.6 s); processors' time 1.4 |  |" in page
    assert "at-most-once, while its processes are killed 10 times, each time at work" in page
    assert "time of at least once over at most once, 4 shards" not in page
    # The command is what one types for the same figures.
    assert shards.command_of(["--record"]) == "make bench BENCH=shards"


def test_what_an_entry_point_loses_is_counted_by_what_was_sent() -> None:
    """Its log cannot tell: results that lack a tuple are those of a log that lacks it."""
    numbers = [*range(READINGS), *range(500)]
    kept = pa.chunked_array([[number % READINGS for number in numbers]])
    assert of_entry(kept, (READINGS, 500)) == (0, 0)
    assert of_entry(kept, (READINGS, 502)) == (2, 0)
    assert of_entry(kept, (READINGS, 499)) == (0, 1)
    # One that is lost is not made up for by another that is there twice.
    assert of_entry(kept, (READINGS + 1, 498)) == (1, 2)


def test_a_short_form_does_not_replace_a_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.record.RESULTS", tmp_path)
    monkeypatch.setattr(shards, "describe_machine", lambda: MACHINE)
    monkeypatch.setattr(shards, "figures_of", lambda *given: (copy.deepcopy(RING), True))
    shards.main(["--quick", "--only", "ring", "--record"])
    shards.main(["--only", "ring", "--record"])
    kept = recorded("shards")
    for given in (["--quick", "--record"], ["--quick", "--only", "ring", "--record"]):
        with pytest.raises(SystemExit):
            shards.main(given)
        assert "the full form of ring is recorded" in capsys.readouterr().err
    assert recorded("shards") == kept
    assert "| kills | 10, 9 of one at work |" in (tmp_path / "shards.md").read_text()
    # Nothing is lost by measuring it.
    shards.main(["--quick", "--only", "ring"])


def test_the_page_is_what_the_recorded_figures_give() -> None:
    page = with_view("shards", page_of(recorded("shards")["parts"]))
    assert (RESULTS / "shards.md").read_text() == page
