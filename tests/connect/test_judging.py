"""A batch is judged as its rows one after the other would be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from holdfast.clock import Clock
from holdfast.connect.generator_source import generate
from holdfast.connect.ingest import Inlet
from holdfast.connect.judging import judge
from holdfast.connect.push_source import PushSource
from holdfast.core.source_time import SourceTime, TimeSettings, TimeVerdict
from holdfast.errors import InputError
from holdfast.simulation.executor import Operator, Row, Union, Window
from tests.connect.support import SECOND, inlet, letters

steps = st.tuples(
    st.sampled_from("abc"), st.lists(st.integers(-5, 60), min_size=1, max_size=8), st.integers(0, 9)
)


@given(
    st.lists(steps, max_size=12),
    st.integers(0, 7),
    st.none() | st.integers(1, 9),
    st.none() | st.integers(0, 30),
)
def test_a_batch_is_judged_as_its_rows_would_be(
    batches: list[tuple[str, list[int], int]],
    lateness: int,
    idle: int | None,
    limit: int | None,
) -> None:
    made = TimeSettings(4, lateness, idle, None, limit)
    one, other = SourceTime(made), SourceTime(made)
    now = 0
    for lane, stamps, passed in batches:
        now += passed
        one.tick(now)
        other.tick(now)
        judged = judge(np.array(stamps), one.rules(lane, now))
        one.took(lane, judged.newest)
        verdicts = [other.judge(lane, stime, now) for stime in stamps]
        assert judged.late.tolist() == [each is TimeVerdict.LATE for each in verdicts]
        assert judged.future.tolist() == [each is TimeVerdict.FUTURE for each in verdicts]
        assert one.boundary == other.boundary


def rows(*seconds: float) -> pa.Table:
    at = (np.array(seconds) * SECOND).astype(np.int64)
    return pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("us", "UTC")),
            "server": ["a"] * len(at),
            "cpu": [1.0] * len(at),
        }
    )


def taken(source_rows: list[pa.Table], directory: Path, **options: object) -> Inlet:
    found = inlet(generate(source_rows, **options), directory)  # type: ignore[arg-type]
    while not found.ended:
        found.take()
    found._dead_letters.flush()
    found._dead_letters.close()
    found.close()
    return found


def results(found: Inlet, operator: Operator) -> list[Row]:
    """What an operator makes of a source, whose rows it gets as their buckets are complete."""
    state: object = None
    start, made = 0, list[Row]()
    while not found.ended:
        found.take()
        stop = min(found.boundary, 100 * SECOND)
        if stop <= start:
            continue
        stimes = [
            stime
            for part in found.release(stop)
            for stime in part.table["stime"].cast(pa.int64()).to_pylist()
        ]
        assert min(stimes, default=start) >= start
        tagged = [(stime, "load", 0, stime % 4, stime, 0) for stime in sorted(stimes)]
        state, emitted, _ = operator.advance(state, tagged, start, stop)
        made += emitted
        start = stop
    found.close()
    assert (found.dead, found.late) == (0, 0)
    return made


@pytest.mark.slow
@settings(max_examples=8)
@given(st.integers(0, 2**32), st.integers(0, 5), st.sampled_from(["drop", "take"]), st.booleans())
def test_any_order_within_the_lateness_gives_the_same_stable_stream(
    tmp_path_factory: pytest.TempPathFactory, seed: int, lateness_s: int, late: str, idles: bool
) -> None:
    """Of operators whose results hang on the order of every row, whatever else is set."""
    random = np.random.default_rng(seed)
    stamps = np.sort(random.choice(60_000, 1_000, replace=False)) / 1000
    arriving = stamps[np.argsort(stamps + random.random(len(stamps)) * lateness_s, kind="stable")]
    for operator in (Window(("load",), 3 * SECOND + 77), Union(("load",), 1)):
        streams = []
        for order in (stamps, arriving):
            cuts = np.sort(random.integers(0, len(order), 20))
            source = generate(
                [rows(*part) for part in np.split(order, cuts) if len(part)],
                lateness=lateness_s * SECOND,
                late=late,
                idle_after="1 hour" if idles else None,
            )
            streams.append(results(inlet(source, tmp_path_factory.mktemp("x")), operator))
        assert streams[0] == streams[1]
        assert len(streams[0]) > 20


MILLION = 1_000_000


def stable_numbers(found: Inlet) -> np.ndarray:
    """The rows of a source as the stable stream has them: bucket by bucket, each sorted."""
    parts, start = [np.zeros(0)], -1
    while not found.ended:
        found.take()
        stop = min(found.boundary, 100 * SECOND)
        tables = [part.table for part in found.release(stop)] if stop > start else []
        if tables:
            table = pa.concat_tables(tables)
            stimes = table["stime"].cast(pa.int64()).to_numpy()
            assert stimes.min() >= start
            parts.append(table["cpu"].to_numpy()[np.argsort(stimes, kind="stable")])
            start = stop
    found.close()
    assert (found.dead, found.late) == (0, 0)
    return np.concatenate(parts)


@pytest.mark.slow
@settings(max_examples=2, deadline=None, phases=[Phase.generate])
@given(st.integers(0, 2**32), st.integers(1, 5 * SECOND), st.integers(5_000, 60_000))
def test_a_million_rows_in_any_order_within_the_lateness_give_the_same_stable_stream(
    tmp_path_factory: pytest.TempPathFactory, seed: int, lateness: int, chunk: int
) -> None:
    random = np.random.default_rng(seed)
    numbers = np.arange(MILLION)
    stamps = np.sort(random.choice(60 * SECOND, MILLION, replace=False))
    # A row comes at most the lateness after one that is newer.
    arriving = np.argsort(stamps + random.integers(0, lateness, MILLION), kind="stable")
    streams = []
    for order in (numbers, arriving):
        tables = (
            pa.table(
                {
                    "at": pa.array(stamps[part]).cast(pa.timestamp("us", "UTC")),
                    "server": pa.repeat("a", len(part)),
                    "cpu": part.astype(np.float64),
                }
            )
            for part in (order[first : first + chunk] for first in range(0, MILLION, chunk))
        )
        source = generate(tables, lateness=lateness)
        streams.append(stable_numbers(inlet(source, tmp_path_factory.mktemp("x"), bucket=200_000)))
    assert np.array_equal(streams[0], numbers)
    assert np.array_equal(streams[1], numbers)


def test_of_a_million_rows_in_any_order_within_the_lateness_none_is_late() -> None:
    random = np.random.default_rng(5)
    count, lateness = 1_000_000, 2 * SECOND
    stamps = np.arange(count) * 60
    arriving = stamps[np.argsort(stamps + random.integers(0, lateness, count), kind="stable")]
    least_after = np.minimum.accumulate(arriving[::-1])[::-1]
    source = SourceTime(TimeSettings(200_000, lateness))
    for first in range(0, count, 10_000):
        judged = judge(arriving[first : first + 10_000], source.rules("a", 0))
        source.took("a", judged.newest)
        assert not judged.late.any()
        # Nothing that is still to come is older than what was said to be complete.
        assert first + 10_000 == count or source.boundary <= least_after[first + 10_000]
    assert source.boundary > stamps[-1] - lateness - 2 * 200_000


def test_a_row_of_another_century_is_a_dead_letter_and_nothing_else(tmp_path: Path) -> None:
    now = datetime.now(UTC).timestamp()
    far = datetime(2099, 1, 1, tzinfo=UTC).timestamp()
    found = taken([rows(now, far, now + 1), rows(now + 2)], tmp_path)
    assert found.tuples == 3
    (letter,) = letters(tmp_path)
    assert letter["reason"] == "too far ahead of the clock (future_limit 1 min)"
    assert (found.dead, found.ahead, found.late) == (1, 1, 0)
    (tmp_path / "off").mkdir()
    off = taken([rows(now, far)], tmp_path / "off", future_limit="off")
    assert off.tuples == 2


def test_late_rows_can_be_taken_at_the_boundary(tmp_path: Path) -> None:
    found = taken([rows(10, 12.5, 3, 12)], tmp_path, late="take")
    waiting = found.waiting()
    stimes = waiting["stime"].cast(pa.int64()).to_pylist()
    assert [each / SECOND for each in stimes] == [10, 12.5, 12, 12]
    # What the row itself says is not changed.
    at = waiting["at"].cast(pa.int64()).to_pylist()
    assert [each / SECOND for each in at] == [10, 12.5, 3, 12]
    assert (found.late, found.dead) == (1, 0)


def test_what_late_means_is_one_of_two_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="late is 'drop' or 'take'; got 'keep'"):
        inlet(generate([], late="keep"), tmp_path)


def test_a_quiet_source_is_idle_but_one_that_was_not_asked_is_not(tmp_path: Path) -> None:
    steady = [0]
    clock = Clock(0, machine=lambda: steady[0], steady=lambda: steady[0])
    source = PushSource(0, idle_after=2 * SECOND, future_limit="off")
    found = inlet(source, tmp_path, clock=clock)
    steady[0] = 50 * SECOND  # nobody asked meanwhile
    found.push(rows(49), "")
    assert found.own_boundary == 49 * SECOND
    for _ in range(30):
        steady[0] += 50_000
        found.take()
    assert found.own_boundary == 49 * SECOND
    steady[0] += 60 * SECOND
    found.take()
    assert found.idle == []
    for _ in range(60):
        steady[0] += 50_000
        found.take()
    assert found.idle == [""]
    late = timedelta(microseconds=steady[0] - found.own_boundary)
    assert timedelta(seconds=2) <= late <= timedelta(seconds=3)
    found.close()
