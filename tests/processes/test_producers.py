"""Producers: whatever they send, in whichever order they come and go, counts exactly once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from holdfast import intact
from holdfast.errors import InputError
from holdfast.flight.peers import act
from holdfast.flight.security import Security
from holdfast.nodes.entry_node import EntryNode
from holdfast.operators import SourceOperator
from holdfast.producer import Producer, ProducerError, ProducerFenced
from holdfast.testing.undisturbed import logged_tuples
from tests.flight.nodes import location, make_entry
from tests.network.test_intact import broken

KEYED = SourceOperator(
    "load",
    "source 'load'",
    (),
    StructType([StructField("value", LongType())]),
    "main",
    None,
    ("value",),
)

TEXT = SourceOperator(
    "load", "source 'load'", (), StructType([StructField("text", StringType())]), "main", None, ()
)


@contextmanager
def running(
    directory: Path, port: int = 0, operator: SourceOperator = KEYED
) -> Iterator[EntryNode]:
    node = make_entry(directory, Security(), port, operator=operator)
    node.start()
    try:
        yield node
    finally:
        node.stop()


def logged(directory: Path, column: str = "value") -> list[Any]:
    values: list[Any] = logged_tuples(directory / "streams" / "load")[column].to_pylist()
    return values


def test_a_batch_of_dead_letters_only_hides_no_later_one(tmp_path: Path) -> None:
    """Its number is used up: the next batch under the same name gets another."""
    with running(tmp_path) as node:
        for number in range(4):
            with Producer("load", location(node), name="p") as producer:
                producer.send([{"value": None}])
                assert producer.flush(20.0) == 2 * number + 1
            with Producer("load", location(node), name="p") as producer:
                assert producer.tuples == 2 * number + 1
                producer.send([{"value": number}])
                assert producer.flush(20.0) == 2 * number + 2
    assert logged(tmp_path) == [0, 1, 2, 3]
    letters = (tmp_path / "dead-letters.jsonl").read_text().splitlines()
    assert [json.loads(each)["row"] for each in letters] == [{"value": None}] * 4


def test_a_batch_of_dead_letters_only_is_remembered_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as node, Producer("load", location(node), name="p") as producer:
        producer.send([{"value": 1}])
        producer.flush(20.0)
        producer.send([{"value": None}])
        producer.flush(20.0)
    with running(tmp_path) as node:
        assert node.status()["dead_letters"] == 1
        with Producer("load", location(node), name="p") as producer:
            assert (producer.durable_sequence, producer.tuples) == (2, 2)
            producer.send([{"value": 2}])
            producer.flush(20.0)
    assert logged(tmp_path) == [1, 2]


def test_the_older_of_two_producers_is_told_and_takes_nothing_from_the_newer(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as node:
        old = Producer("load", location(node), name="p")
        old.send([{"value": 1}])
        assert old.flush(20.0) == 1
        with Producer("load", location(node), name="p") as new:
            assert new.tuples == 1
            new.send([{"value": 2}])
            assert new.flush(20.0) == 2
            old.send([{"value": 3}])
            with pytest.raises(ProducerFenced, match="another one opened the same name"):
                old.flush(20.0)
            new.send([{"value": 4}])
            assert new.flush(20.0) == 3
    assert logged(tmp_path) == [1, 2, 4]


def test_an_epoch_outlives_the_entry_point(tmp_path: Path) -> None:
    with running(tmp_path) as node:
        port = node.port
        old = Producer("load", location(node), name="p")
        new = Producer("load", location(node), name="p")
    with running(tmp_path, port):
        new.send([{"value": 2}])
        assert new.flush(20.0) == 1
        old.send([{"value": 1}])
        with pytest.raises(ProducerFenced):
            old.flush(20.0)
        new.close()
    assert logged(tmp_path) == [2]


def test_a_gap_in_the_numbers_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as node:
        producer = Producer("load", location(node), name="p")
        producer.send([{"value": 1}])
        producer.flush(20.0)
        producer._sequence += 1  # as if a batch had been lost
        producer.send([{"value": 3}])
        with pytest.raises(ProducerError, match=r"batch 3 .* batch 2 is next"):
            producer.flush(20.0)
    assert logged(tmp_path) == [1]


def put_raw(node: EntryNode, batch: pa.RecordBatch, about: dict[str, object]) -> None:
    """A batch as somebody sends it who does not use our producer; waits for the answer."""
    with flight.connect(location(node)) as client:
        act(client, Security(), "p", "producer", {"producer": "p"})
        said = {"stream": "load", "producer": "p", "epoch": 1}
        writer, reader = client.do_put(
            flight.FlightDescriptor.for_command(json.dumps(said).encode()),
            batch.schema,
            flight.FlightCallOptions(timeout=20.0, headers=Security().headers("p")),
        )
        with contextlib.closing(writer):
            writer.write_with_metadata(batch, pa.py_buffer(json.dumps(about).encode()))
            reader.read()
            writer.done_writing()


@pytest.mark.parametrize("offsets", [(0, 1 << 30, 6), (0, 5, 2)], ids=["far", "backwards"])
def test_malformed_arrow_is_refused_before_anything_reads_it(
    tmp_path: Path, offsets: tuple[int, ...]
) -> None:
    batch = broken(pa.array(["abc", "def"]), 1, *offsets)
    with running(tmp_path, operator=TEXT) as node:
        with pytest.raises(flight.FlightError, match="column 'text' is malformed Arrow"):
            put_raw(node, batch, {"sequence": 1, "tuples": 2})
        with Producer("load", location(node), name="p") as producer:
            producer.send([{"text": "good"}])
            assert producer.flush(20.0) == 1
    assert logged(tmp_path, "text") == ["good"]


def test_a_batch_that_is_too_large_is_refused_by_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intact, "LARGEST_BATCH_BYTES", 1_000)
    batch = pa.record_batch({"text": ["x" * 400] * 3})
    with running(tmp_path, operator=TEXT) as node:
        with pytest.raises(flight.FlightError, match="too large, at most 1,000 are taken"):
            put_raw(node, batch, {"sequence": 1, "tuples": 3})
        # Ours sends what is too large for one batch in several.
        with Producer("load", location(node), name="p") as producer:
            producer.send(batch)
            assert producer.flush(20.0) == 3
            with pytest.raises(InputError, match=r"row 1 has .* bytes, at most 1,000"):
                producer.send([{"text": "small"}, {"text": "x" * 2_000}])
    assert logged(tmp_path, "text") == ["x" * 400] * 3


def test_what_does_not_fit_is_refused_where_it_is_sent(tmp_path: Path) -> None:
    """A key must be there, an unknown column must not, and nothing of such a call is sent."""
    with running(tmp_path) as node, Producer("load", location(node), name="p") as producer:
        for row, words in (
            ({}, "has a column 'value' that must have a value"),
            ({"value": 1, "vlaue": 2}, "has no column 'vlaue'"),
            ({"value": "one"}, "column 'value' is declared int64; row 1 has 'one'"),
        ):
            with pytest.raises(InputError, match=words):
                producer.send([{"value": 0}, row])
        producer.send([{"value": 1}])
    assert logged(tmp_path) == [1]
