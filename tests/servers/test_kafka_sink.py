"""A topic as a sink, with a real broker: each tuple once for whoever reads committed records."""

from __future__ import annotations

import json
import time
from typing import Any

import confluent_kafka as kafka
import pyarrow as pa
import pytest

from benchmarks.kafka_broker import Broker
from holdfast.connect.kafka_producer import Producer
from holdfast.connect.kafka_sink import KafkaSink, write_kafka
from holdfast.connect.sink import Position, Writer
from holdfast.errors import StateError
from holdfast.frames import SEQ, STIME
from tests.servers.support import SECONDS, records, topic_name

pytestmark = [pytest.mark.thorough]

OWN = pa.schema([pa.field("server", pa.string()), pa.field("cpu", pa.float64())])


def tuples(first: int, end: int, key: str = "s") -> pa.Table:
    ids = list(range(first, end))
    times = pa.array([1_700_000_000_000_000 + each for each in ids]).cast(STIME.type)
    columns = [pa.array(ids), times, pa.array([key] * len(ids)), pa.array(ids, pa.float64())]
    return pa.table(columns, schema=pa.schema([SEQ, STIME, *OWN]))


def tentative(first: int, end: int, key: str = "s") -> pa.Table:
    return tuples(first, end, key).drop_columns(["seq"])


def sink(broker: Broker, topic: str, **options: Any) -> KafkaSink:
    made = write_kafka(topic, servers=broker.servers, **options).known_as("me")
    assert isinstance(made, KafkaSink)
    return made


def flushed(writer: Writer) -> Position:
    """The position, once the broker takes it: it may be loading still."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return writer.flush()
        except OSError:
            if time.monotonic() > deadline:
                raise


def ids(broker: Broker, topic: str, count: int) -> list[int]:
    found = []
    for record in records(broker, topic, count):
        headers = dict(record.headers())
        if headers["holdfast-stability"] == b"stable":
            found.append(int(headers["holdfast-id"]))
    return found


def test_records_have_key_time_and_headers(broker: Broker) -> None:
    topic = topic_name("headers")
    broker.create(topic, 2)
    writer = sink(broker, topic, key="server").open("busy", OWN, None)
    writer.write(tuples(0, 3))
    assert flushed(writer)["next_id"] == 3
    found = records(broker, topic, 3)
    assert [each.key() for each in found] == [b"s"] * 3
    assert len({each.partition() for each in found}) == 1
    assert json.loads(found[1].value()) == {"server": "s", "cpu": 1.0}
    assert found[1].timestamp()[1] == 1_700_000_000_000
    assert dict(found[1].headers()) == {
        "holdfast-id": b"1",
        "holdfast-stime": b"1700000000000001",
        "holdfast-stability": b"stable",
    }
    writer.close()


def test_what_was_committed_is_left_out_whatever_the_client_knows(broker: Broker) -> None:
    topic = topic_name("again")
    broker.create(topic)
    first = sink(broker, topic).open("busy", OWN, None)
    first.write(tuples(0, 10))
    flushed(first)
    first.write(tuples(10, 20))  # the client dies before it has noted the next
    flushed(first)
    again = sink(broker, topic).open("busy", OWN, {"next_id": 10})
    again.write(tuples(10, 25))
    assert flushed(again)["next_id"] == 25
    assert ids(broker, topic, 25) == list(range(25))
    # Who writes is another: its ids are its own.
    other = write_kafka(topic, servers=broker.servers).known_as("other").open("busy", OWN, None)
    other.write(tuples(0, 2))
    flushed(other)
    assert ids(broker, topic, 27) == [*range(25), 0, 1]


def test_an_older_writer_of_the_same_name_is_fenced(broker: Broker) -> None:
    topic = topic_name("fenced")
    broker.create(topic)
    old = sink(broker, topic).open("busy", OWN, None)
    old.write(tuples(0, 5))
    flushed(old)
    new = sink(broker, topic).open("busy", OWN, {"next_id": 5})
    new.write(tuples(5, 10))
    flushed(new)
    old.write(tuples(5, 10))
    with pytest.raises(StateError, match="another writer has taken over"):
        flushed(old)
    assert ids(broker, topic, 10) == list(range(10))


def test_a_topic_that_was_set_back_is_refused(broker: Broker) -> None:
    topic = topic_name("back")
    broker.create(topic)
    writer = sink(broker, topic).open("busy", OWN, {"next_id": 7})
    writer.write(tuples(7, 9))
    with pytest.raises(StateError, match="has tuples up to id 0, but 7 were written"):
        flushed(writer)


def wait_for_marks(broker: Broker, topic: str, count: int) -> None:
    """Until Kafka has ended the last transaction in all places, not only decided that it will.

    A single broker that is killed in between forgets to do it, as the page on connectors tells.
    """
    assert len(ids(broker, topic, count)) == count
    group = {"group.id": f"holdfast-{topic}-busy", "isolation.level": "read_committed"}
    consumer = kafka.Consumer({**group, "bootstrap.servers": broker.servers, "log_level": 0})
    (place,) = consumer.committed([kafka.TopicPartition(topic, 0)], SECONDS)
    consumer.close()
    assert place.offset == count


@pytest.mark.parametrize("inside", [False, True])
def test_a_broker_that_is_killed_between_and_in_transactions(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    topic = topic_name("killed")
    broker.create(topic)
    position: Position | None = None
    writer = sink(broker, topic).open("busy", OWN, position)

    def kept_and_killed(producer: Producer, *arguments: Any) -> None:
        keep(producer, *arguments)
        broker.kill()

    keep = Producer.keep
    for number in range(3):
        batch = tuples(100 * number, 100 * (number + 1))
        writer.write(batch)
        if number == 1:
            wait_for_marks(broker, topic, 100)
            with monkeypatch.context() as patched:
                if inside:  # the broker has the records and the id, and waits for the commit
                    patched.setattr(Producer, "keep", kept_and_killed)
                else:
                    broker.kill()
                with pytest.raises(OSError, match="Kafka"):
                    writer.flush()
            writer.close()
            broker.start()
            writer = sink(broker, topic).open("busy", OWN, position)
            writer.write(batch)
        position = flushed(writer)
    assert ids(broker, topic, 300) == list(range(300))


def test_tentative_results_and_what_takes_them_back(broker: Broker) -> None:
    topic, other = topic_name("both"), topic_name("tentative")
    broker.create(topic)
    broker.create(other)
    for place in (True, other):
        writer = sink(broker, topic, tentative=place).open(f"to-{place}", OWN, None)
        writer.write_tentative(tentative(0, 2), None)
        position = flushed(writer)
        assert position["tentative_until"] > 0
        writer.close()
        # Whoever goes on takes back first what it cannot know of.
        again = sink(broker, topic, tentative=place).open(f"to-{place}", OWN, position)
        again.write(tuples(0, 2))
        assert flushed(again)["tentative_until"] == 0
        again.close()
    marks = [dict(each.headers())["holdfast-stability"] for each in records(broker, topic, 7)]
    assert marks == [b"tentative", b"tentative", b"undo", b"stable", b"stable"] + [b"stable"] * 2
    marks = [dict(each.headers())["holdfast-stability"] for each in records(broker, other, 3)]
    assert marks == [b"tentative", b"tentative", b"undo"]


def test_with_keys_corrections_are_upserts(broker: Broker) -> None:
    topic = topic_name("upserts")
    broker.create(topic, cleanup_policy="compact")
    writer = sink(broker, topic, key="server", tentative=True).open("busy", OWN, None)
    writer.write_tentative(tentative(0, 1, "a"), None)
    writer.write_tentative(tentative(1, 2, "b"), None)
    flushed(writer)
    writer.undo(1_700_000_000_000_002)
    writer.write(tuples(0, 1, "a"))
    flushed(writer)
    newest = {each.key(): each.value() for each in records(broker, topic, 5)}
    assert newest[b"b"] is None
    assert json.loads(newest[b"a"]) == {"server": "a", "cpu": 0.0}
    writer.close()
