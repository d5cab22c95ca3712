"""The journal of a query that writes into a source: each row once, whatever comes again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.errors import StateError
from holdfast.structured.writer import DoneBatches, SourceWriter


def part(*numbers: int) -> bytes:
    batch = pa.record_batch({"number": pa.array(numbers, pa.int64())})
    return SourceWriter("d", "load", "spark", "j").write(iter([batch])).data


def journal(directory: Path, producer: str = "spark") -> DoneBatches:
    return DoneBatches(directory / "journal", "load", producer)


def numbers(table: pa.Table) -> list[int]:
    found: list[int] = table["number"].to_pylist()
    return found


def test_a_batch_that_was_begun_goes_on_with_the_rows_of_its_first_attempt(tmp_path: Path) -> None:
    first = journal(tmp_path)
    table = first.begin(0, [part(1, 2), part(3)])
    assert numbers(first.left(table, 100)) == [1, 2, 3]
    # The entry point takes two of them, and the driver dies. Spark computes them in another order.
    second = journal(tmp_path)
    assert not second.is_done(0)
    again = second.begin(0, [part(3, 1, 2)])
    assert numbers(second.left(again, 102)) == [3]


def test_a_batch_that_is_done_is_not_sent_again(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.left(first.begin(0, [part(1)]), 0)
    first.done(0, 1)
    second = journal(tmp_path)
    assert second.is_done(0)
    assert not second.is_done(1)
    assert list((tmp_path / "journal").glob("batch-*")) == []


def test_a_batch_without_rows_is_done_as_well(tmp_path: Path) -> None:
    made = journal(tmp_path)
    assert made.left(made.begin(0, []), 7).num_rows == 0
    made.done(0, 7)
    assert journal(tmp_path).is_done(0)


def test_a_query_that_begins_anew_is_refused(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.left(made.begin(5, [part(1)]), 0)
    made.done(5, 1)
    with pytest.raises(StateError, match="batch 0 came, but batch 5 is done"):
        journal(tmp_path).is_done(0)


def test_tuples_that_this_query_did_not_send_are_noticed(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.left(made.begin(0, [part(1)]), 0)
    made.done(0, 1)
    later = journal(tmp_path)
    table = later.begin(1, [part(2)])
    with pytest.raises(StateError, match="Another program sends under that name"):
        later.left(table, 9)
    with pytest.raises(StateError, match="data is new"):
        later.left(table, 0)


def test_the_journal_of_another_query_is_refused(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.left(made.begin(0, [part(1)]), 0)
    with pytest.raises(StateError, match="directory of its own"):
        journal(tmp_path, producer="other")
