"""The figures of the benchmark ``web``, from runs made up for the purpose."""

from __future__ import annotations

from benchmarks.web_figures import ages, figures, percentile


def test_a_change_is_as_old_as_the_replica_wrote_it() -> None:
    wrote = {"main-1": [(10.0, "stable"), (12.0, "up_failure"), (20.0, "stable")]}
    drawn = [
        ("main-1", "stable", 11.5),  # it was so before anybody watched
        ("main-1", "up_failure", 12.25),
        ("main-1", "up_failure", 13.5),  # again, after it was slow to answer
        ("main-1", "stable", 20.5),
        ("other", "stable", 30.0),
    ]
    assert ages(drawn, wrote, since=11.0) == [250.0, 500.0]


def test_the_line_says_what_was_measured() -> None:
    made_up = {"frame_ms_operators": 9.0, "frame_ms_servers": 12.5, "page_kb": 70.2}
    found = figures([float(each) for each in range(1, 201)], made_up, [0.9, 0.99, 1.1])
    assert found["update_ms"] == {"p50": 101, "p99": 199, "count": 200}
    assert found["frame_ms"] == {"operators": 9.0, "servers": 12.5}
    assert found["replica_cost"] == 0.99
    assert found["page_kb"] == 70.2


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([7.0], 0.5) == 7.0
