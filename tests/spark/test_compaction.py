"""Which runs a new one swallows, and when."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.spark.compaction import how_many_to_merge


def swallowed_together(partitions: Sequence[int], buckets: int, base: int) -> int:
    """The most rows that a bucket merges in these partitions, which are alike."""
    runs = [[base] for _ in partitions]
    most = 0
    for _ in range(buckets):
        rows = 0
        for at, partition in enumerate(partitions):
            mine = runs[at]
            kept = len(mine) - how_many_to_merge(mine, 1500, partition)
            merged = sum(mine[kept:]) + 1500
            rows += merged if kept < len(mine) else 0
            runs[at] = [*mine[:kept], merged]
            assert len(runs[at]) < 12
        most = max(most, rows)
    return most


def test_partitions_do_not_swallow_their_long_runs_in_one_bucket() -> None:
    base = 1_000_000
    alike = swallowed_together([0, 0], 3_000, base)
    assert alike > 3 * base  # both, in one bucket
    assert swallowed_together([0, 1], 3_000, base) < 0.6 * alike


def test_short_runs_are_swallowed_together() -> None:
    for rows in ([2_000], [3_000, 1_500], [18_000, 3_000, 1_500]):
        assert how_many_to_merge(rows, 1500, 0) == how_many_to_merge(rows, 1500, 1)
