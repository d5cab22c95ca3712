"""What benchmarks engine and failover make of what was seen beside other systems."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.engine import summary
from benchmarks.engine_flink import warm_rate
from benchmarks.engine_inputs import Case, write_halves, write_input
from benchmarks.failover import summary as failover_summary


def test_the_rate_is_that_after_the_first_third_and_each_reading_counts_when_it_was_new() -> None:
    progress = [(0.0, 0), (1.0, 100), (2.0, 400), (2.5, 400), (3.0, 650), (4.0, 900), (4.2, 900)]
    assert warm_rate(progress, 900) == {"tuples_s": 250.0}


def test_a_job_that_was_not_seen_to_end_gives_no_rate() -> None:
    with pytest.raises(SystemExit, match="400 of 900 tuples"):
        warm_rate([(0.0, 0), (1.0, 300), (2.0, 350), (3.0, 400)], 900)


def test_the_halves_have_every_tuple_once_and_each_is_in_order(tmp_path: Path) -> None:
    case = Case("small", tuples=7, keys=5, buckets=3)
    write_input(case, tmp_path)
    halves = [pq.read_table(path) for path in sorted(write_halves(case, tmp_path).iterdir())]
    whole = pa.concat_tables(
        [pq.read_table(path) for path in sorted(case.directory(tmp_path).iterdir())]
    )
    assert [half.num_rows for half in halves] == [12, 9]
    for half in halves:
        times = half["at"].to_pylist()
        assert times == sorted(times)
    together = pa.concat_tables(halves).sort_by([("at", "ascending"), ("item", "ascending")])
    assert together.equals(whole.sort_by([("at", "ascending"), ("item", "ascending")]))


def test_without_flink_nothing_is_said_about_it() -> None:
    bytes_each = {"bytes_per_window": 70.0, "memory_per_window": 48.0}
    times = {"median_ms": 1.0, "p99_ms": 2.0, "longest_ms": 3.0}
    merging = {"merging_median_ms": 9.0, "merging_longest_ms": 90.0}
    swept = {"10": {**times, **bytes_each, **merging, "peak_gib": 1.5}}
    joins = {"10": {"median_ms": 2.0}, "20": {"median_ms": 2.5}}
    told = summary({"flink": {}, "sweep": swept, "joins": joins})
    assert (told["join_sweep"], told["join_sweep_ratio"]) == ({"10": 2.0, "20": 2.5}, 1.25)
    assert not [key for key in told if key.startswith("flink")]
    assert told["state_sweep"] == {"10": 1.0}
    assert (told["state_sweep_p99_ms"], told["state_sweep_longest_ms"]) == (
        {"10": 2.0},
        {"10": 3.0},
    )
    assert (told["merging_median_ms"], told["merging_longest_ms"]) == (9.0, 90.0)
    assert (told["bytes_per_window"], told["memory_per_window"]) == (70.0, 48.0)
    told = summary({"flink": {"ready-1m": {"flink_ratio": 1.234}}})
    assert told["flink_ratio_1m"] == 1.23


def test_a_gap_is_set_against_those_of_flink_and_only_losses_of_ours_count() -> None:
    seen = {"lost": 0, "duplicated": 0, "parts_ms": [{}]}
    found = {
        "flink": {**seen, "gaps_ms": [2000.0, 4000.0], "duplicated": 90},
        "active": {**seen, "gaps_ms": [300.0]},
        "hybrid": {**seen, "gaps_ms": [600.0]},
    }
    told = failover_summary(found)
    assert (told["hybrid_over_flink"], told["active_over_flink"]) == (0.2, 0.1)
    assert told["duplicated"] == 0
