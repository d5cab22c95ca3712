"""The world and the figures of the benchmark ``race``, from runs made up for the purpose."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.race import missed, outcome, told
from benchmarks.race_deployment import write_deployment
from benchmarks.race_load import Load
from benchmarks.race_measure import Seen
from benchmarks.race_page import draw, page_of
from benchmarks.race_places import (
    PLACES,
    TURNS,
    followed_at,
    links_followed_ms,
    links_ms,
    nearest,
    usual_places,
)
from benchmarks.race_simulated import compared
from benchmarks.race_world import LONGEST_MS, SHORTEST_MS, draw_places, made, measured

SUMS = {
    "exact_sum_cost": 0.95,
    "ordered_ms": 95.0,
    "exact_ms": 100.0,
    "ordered_bytes": 72.0,
    "exact_bytes": 96.0,
}


def test_places_are_neither_near_nor_far_and_replicas_of_one_number_apart(tmp_path: Path) -> None:
    chance = random.Random(3)
    places, matrix = draw_places(*made(chance), PLACES, chance)
    assert len(set(places)) == PLACES
    links = [ms for (here, there), ms in matrix.items() if here != there]
    assert SHORTEST_MS <= min(links) <= max(links) <= LONGEST_MS
    found = write_deployment(tmp_path, "race", places, matrix).distances
    assert found.places == usual_places(places)
    assert len({found.places[f"{name}-1"] for name in ("merged", "alerts")}) == 2
    followed = {"alerts": "alerts-2", "merged": "merged-3"}
    for at in TURNS:
        moved = followed_at(places, followed, at)
        assert (moved["merged-3"], moved["alerts-2"]) == (places[at[0]], places[at[1]])
        assert sorted(moved.values()) == sorted(usual_places(places).values())
    for column in zip(*TURNS, strict=True):
        assert sorted(column) == [0, 1, 2], "everybody who is followed is everywhere in turn"
    best = links_followed_ms(places, matrix, nearest(places, matrix))
    assert best == min(
        links_followed_ms(places, matrix, (a, b)) for a in range(3) for b in range(3)
    )
    alone = links_ms(places, matrix)
    assert alone["race"] <= alone["nearest"] <= alone["active"]


def test_measured_round_trips_are_halved(tmp_path: Path) -> None:
    (tmp_path / "trips.txt").write_text("0 50 60\n50 0 70\n60 70 0\n")
    names, matrix = measured(tmp_path / "trips.txt")
    assert np.array_equal(matrix, [[0, 25, 30], [25, 0, 35], [30, 35, 0]])
    places, found = draw_places(names, matrix, 3, random.Random(1))
    assert sorted(places) == names
    assert found["machine-0", "machine-1"] == 25.0


def test_the_line_says_what_was_seen() -> None:
    light = Load(0.6, 0.5, 12.0, 40.0)
    race, active = (Seen(loads=[light] * 5, identical=True, results=10) for _ in range(2))
    race.calm, race.in_order, race.slowed = (np.full(9, ms) for ms in (400.0, 540.0, 720.0))
    active.calm, active.nearest, active.slowed = (np.full(9, ms) for ms in (600.0, 390.0, 2_000.0))
    active.in_order = active.calm
    race.gaps_ms, active.gaps_ms = [20.0, 10.0, 30.0], [900.0, 1000.0, 800.0]
    race.bytes_per_second, active.bytes_per_second = [900.0] * 5, [300.0] * 5
    race.missing, active.missing = np.full(9, 1_000.0), np.full(9, 20_000.0)
    figures = outcome(race, active, SUMS)
    assert figures["p50_over_active"] == 0.667
    assert figures["p50_in_order_over_active"] == 0.9
    assert figures["p99_slowed_over_active"] == 0.36
    assert (figures["gap_ms"], figures["gap_ms_active"]) == (20, 900)
    assert figures["kill_gap_ms"] is None, "nobody was killed"
    assert figures["traffic_over_active"] == 3.0
    assert figures["unordered_over_active"] == 0.05
    assert missed(figures) == []
    race.all_stable = False
    assert missed(outcome(race, active, SUMS)) == ["unordered_all_stable"]
    race.all_stable = True
    race.kill_gaps_ms, active.kill_gaps_ms = [40.0, 60.0], [1_400.0, 1_600.0]
    race.loads.append(Load(0.9, 0.7, 12.0, 40.0))
    figures = outcome(race, active, SUMS)
    assert missed(figures) == ["counts"], "a busy machine does not count"
    names = ("p50_ms", "p99_ms", "gap_ms", "p99_missing_ms", "rows_per_second")
    worlds = [(dict.fromkeys(names, 10.0 * at), dict.fromkeys(names, 40.0)) for at in (1, 2, 6)]
    whole = compared(worlds, 40_000)
    assert (whole["worlds"], whole["gap_over_active"], whole["job_ms"]) == (3, 0.5, 40.0)
    summary = {
        **figures,
        "missed": missed(figures),
        "missing_s": 20.0,
        "simulated": whole,
        "sums": SUMS,
        "links_ms": {"race": 100.0, "active": 250.0, "nearest": 110.0},
        "modes": {"race": told(race), "active": told(active)},
        "world": "made",
        "seconds": 200.0,
        "machine": {"cores": 2, "cpu": "x", "memory_gib": 24, "date": "2026-11-16"},
    }
    page = page_of(summary, "make bench BENCH=race")
    assert "| p50 over active | 0.667 | at most 0.9 |" in page
    assert "| gap after kill -9, ms | 50.0 | active 1500.0 |" in page
    assert "| p99 with an input missing over active | 0.05 | at most 0.2 |" in page
    assert "Missed: `counts`. The machine was busy for 90% of the time at worst, 70% with" in page
    assert "| race | 100 | 400 | 400 | 720 | 1,000 |" in page
    assert "| race, in order | 100 | 540 | 540 | – | – |" in page
    assert "| nearest | 110 | 390 | 390 | – | – |" in page
    assert "| gap after a silent cut, ms | 0.5 | 20.0 | 40.0 |" in page
    draw(summary, Figure())
