"""The figures of the benchmark ``time``, from runs made up for the purpose."""

from __future__ import annotations

from benchmarks.time import Run, outcome


def run(policy: str, burnt: bool) -> Run:
    return Run(
        policy,
        burnt,
        alphas=[0.88, 0.6 if burnt else 0.86],
        seconds=[5.0, 15.0],
        worst_s=[2.7, 3.15 if burnt else 2.85],
        tentative=[100, 300],
        within=[(1_000, 1_000), (1_000, 998)],
        explained=[(4, 4), (6, 6)],
    )


def test_the_line_says_what_was_promised() -> None:
    sources = {"future_row_gap_s": 1.0, "idle_gap_s": 1.1, "idle_tentative": 0}
    runs = [run("process & process", False), run("delay & delay", False)]
    found = outcome([*runs, run("process & process", True)], sources, 0.4).figures
    assert found["delay_new_max_over_x"] == {"process & process": 0.95, "delay & delay": 0.95}
    assert found["alpha"] == {"process & process": 0.86, "delay & delay": 0.86}
    assert found["tentative_below_alpha_x"] == 0
    assert found["within_x_burnt"] == 0.999
    assert found["delay_new_max_over_x_burnt"] == 1.05
    assert found["alpha_burnt"] == 0.6
    assert found["explained"] == 1.0
