"""What the demonstration notes, shows, draws and compares; test_demo_runs.py runs it."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from holdfast.client import Boundary, Tuples, Undo
from holdfast.demo.batch import difference
from holdfast.demo.history import History
from holdfast.demo.picture import draw_history
from holdfast.demo.readings import REGIONS, Monitor
from holdfast.demo.view import LiveView, PlainView
from holdfast.frames import TIME


def results(stime: int, probes: int) -> pa.Table:
    times = pa.array([stime, stime]).cast(TIME)
    rows = {
        "stime": times,
        "tmax": times,
        "server": ["am-00", "as-01"],
        "probes": [probes, probes],
        "latency_ms": [10.0, 30.0],
        "slowest_ms": [20.0, 40.0],
    }
    return pa.table(rows)


def failed_and_healed() -> History:
    history = History(60.0, 2.0)
    history.in_state("asia", "up")
    history.in_state("main-1", "stable")
    history.start()
    history.take(Tuples(True, 0, results(1_000_000, 15)))
    history.in_state("asia", "cut off")
    history.mark("asia is cut off")
    history.take(Tuples(False, 2, results(2_000_000, 10)))
    assert history.tentative == 2
    history.in_state("asia", "up")
    history.take(Undo(2_000_001))
    history.take(Tuples(True, 2, results(2_000_000, 15)))
    history.take(Boundary(3_000_000))
    return history


def test_a_correction_is_known_as_one() -> None:
    history = failed_and_healed()
    assert [each.kind for each in history.answers] == ["stable", "tentative", "corrected"]
    assert history.counts == {"stable": 2, "tentative": 2, "corrected": 2}
    corrected = history.answers[-1]
    assert (corrected.probes, corrected.before) == (30, 20)
    assert (corrected.latency_ms, corrected.slowest) == (20.0, "as-01")
    assert [count for _, count in history.standing] == [0, 2, 0]
    assert [state for _, state in history.states["asia"]] == ["up", "cut off", "up"]


def test_both_views_show_it() -> None:
    for kind, terminal in ((LiveView, True), (PlainView, False)):
        text = io.StringIO()
        history = failed_and_healed()
        view = kind(Console(file=text, force_terminal=terminal, width=120), history)
        view.say("asia is back")
        view.show(history.answers)
        view.tick()
        view.close()
        for said in ("asia is back", "main-1", "tentative", "corrected had 20 probes"):
            assert said in text.getvalue()


def test_it_is_drawn(tmp_path: Path) -> None:
    draw_history(str(tmp_path / "demo.png"), failed_and_healed())
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_one_wrong_bit_is_a_difference() -> None:
    stable = pa.concat_tables([results(1_000_000, 15), results(2_000_000, 15)])
    batch = stable.append_column("seq", pa.nulls(4, pa.int64()))
    assert difference(stable, batch) is None
    wrong = stable.set_column(4, "latency_ms", [[10.0, 30.000000000000004, 10.0, 30.0]])
    assert "differs from the oracle" in str(difference(wrong, batch))
    assert "differs from the oracle" in str(difference(stable.slice(0, 3), batch))
    swapped = pa.concat_tables([stable.slice(2), stable.slice(0, 2)])
    assert difference(swapped, batch) == "the stable stream is not in the order of its times"


def test_probes_can_be_repeated() -> None:
    for region in REGIONS:
        monitor = Monitor(region, 6)
        whole = monitor.rows(0, 200)
        assert whole.slice(120).equals(monitor.rows(120, 80))
        assert len(set(whole["server"].to_pylist())) == 6
