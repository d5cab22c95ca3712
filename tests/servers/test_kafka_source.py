"""A topic as a source, with a real broker: every record once, whatever happens to the topic."""

from __future__ import annotations

import datetime
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka as kafka
import pyarrow as pa
import pytest

from benchmarks.kafka_broker import Broker
from holdfast.connect.ingest import Inlet
from holdfast.connect.kafka_source import KafkaSource, read_kafka
from holdfast.errors import InputError
from holdfast.frames import TIME
from tests.connect.support import COLUMNS, inlet
from tests.servers.support import letters, row, send, take_until, topic_name

pytestmark = [pytest.mark.thorough]


def source(broker: Broker, topic: str, **options: Any) -> KafkaSource:
    chosen = {"lateness": "1 hour", "servers": broker.servers, "future_limit": "off", **options}
    return read_kafka(topic, **chosen)


def numbers(reading: Inlet) -> list[int]:
    """The rows that came, in the order of their ids."""
    return [int(each) for each in reading.waiting()["cpu"].to_pylist()]


def saved(reading: Inlet) -> dict[str, Any]:
    """What the ledger would have."""
    found: dict[str, Any] = json.loads(json.dumps(reading.save()))
    reading.close()
    return found


def dead(reading: Inlet, directory: Path) -> list[dict[str, Any]]:
    """The dead letters so far; closes it."""
    reading.close()
    reading._dead_letters.flush()
    reading._dead_letters.close()
    return letters(directory)


def test_every_record_of_every_partition_once_over_restarts(broker: Broker, tmp_path: Path) -> None:
    topic = topic_name("restarts")
    broker.create(topic, 3)
    seen: list[int] = []
    kept = None
    for life in range(3):
        for partition in range(3):
            first = 100 * (3 * life + partition)
            send(broker, topic, [row(each) for each in range(first, first + 100)], partition)
        reading = inlet(source(broker, topic), tmp_path, saved=kept)
        take_until(reading, partial(lambda inlet: len(numbers(inlet)) >= 300, reading))
        seen += numbers(reading)
        kept = saved(reading)
    assert sorted(seen) == list(range(900))
    assert kept is not None
    assert kept["position"]["offsets"] == {"0": 300, "1": 300, "2": 300}


def test_bad_records_are_dead_letters_with_their_place(broker: Broker, tmp_path: Path) -> None:
    topic = topic_name("bad")
    broker.create(topic, 2)
    values = [row(0), b"{", None, {**row(1), "at": "yesterday"}, row(2), b"[1]", b" ", b"{}{}"]
    send(broker, topic, values, partition=1)
    pretty = json.dumps(row(3), indent=2).encode() + b"\n"
    send(broker, topic, [pretty, {**row(4), "at": "2023-01-01"}], partition=1)
    reading = inlet(source(broker, topic, lateness="1 minute"), tmp_path)
    take_until(reading, lambda: reading.tuples + reading.dead == 10)
    found = dead(reading, tmp_path)
    # The other partition said nothing yet, so nothing was late: only what is no row is gone.
    assert numbers(reading) == [0, 2, 3, 4]
    places = {each["row"]["kafka_offset"]: each["reason"] for each in found}
    assert sorted(places) == [1, 2, 3, 5, 6, 7]
    assert "tombstone" in places[2]
    assert "'at'" in places[3]
    rows = [each["row"] for each in found]
    assert {(each["kafka_topic"], each["kafka_partition"]) for each in rows} == {(topic, 1)}


def test_a_late_record_is_a_dead_letter_with_its_place(broker: Broker, tmp_path: Path) -> None:
    topic = topic_name("late")
    broker.create(topic)
    send(broker, topic, [row(600), row(1)])
    reading = inlet(source(broker, topic, lateness="1 minute"), tmp_path)
    take_until(reading, lambda: reading.late == 1)
    (letter,) = dead(reading, tmp_path)
    assert letter["row"]["kafka_offset"] == 1
    assert reading.waiting().column_names == ["stime", "tmax", "seq", *COLUMNS.names]


def test_the_slowest_partition_holds_the_boundary_until_it_is_idle(
    broker: Broker, tmp_path: Path
) -> None:
    topic = topic_name("idle")
    broker.create(topic, 2)
    start = int(time.time()) - 5

    def reading_of(second: int) -> dict[str, Any]:
        at = datetime.datetime.fromtimestamp(start + second, datetime.UTC)
        return {"at": at.isoformat(), "server": "a", "cpu": 1}

    send(broker, topic, [reading_of(4)], partition=0)
    send(broker, topic, [reading_of(0)], partition=1)
    reading = inlet(source(broker, topic, lateness=0, idle_after="1 second"), tmp_path)
    take_until(reading, lambda: reading.tuples == 2)
    assert reading.own_boundary <= start * 1_000_000
    take_until(reading, lambda: reading.idle == ["0", "1"])
    ahead = int(time.time()) - start + 30
    send(broker, topic, [reading_of(ahead)], partition=0)
    take_until(reading, lambda: reading.tuples == 3)
    # The one that is idle holds nobody back.
    assert reading.own_boundary == (start + ahead) * 1_000_000
    reading.close()


def test_a_record_s_own_time_and_key_are_columns(broker: Broker, tmp_path: Path) -> None:
    topic = topic_name("own")
    broker.create(topic)
    send(broker, topic, [{"cpu": 1}], key=b"a", timestamp=1_700_000_000_000)
    columns = pa.schema(
        [
            pa.field("kafka_timestamp", TIME),
            pa.field("server", pa.string()),
            pa.field("kafka_key", pa.string()),
            pa.field("cpu", pa.float64()),
            pa.field("kafka_offset", pa.int64()),
        ]
    )
    send(broker, topic, [{"cpu": 2, "server": "s"}], key=b"b", timestamp=1_700_000_000_500)
    reading = inlet(source(broker, topic), tmp_path, stime="kafka_timestamp", columns=columns)
    take_until(reading, lambda: reading.tuples + reading.dead == 2)
    (found,) = reading.waiting().to_pylist()  # the first has no server, which is the key
    assert found["kafka_key"] == "b"
    assert found["kafka_offset"] == 1
    assert found["stime"].timestamp() == 1_700_000_000.5
    reading.close()


def test_partitions_that_are_added_are_read_from_their_beginning(
    broker: Broker, tmp_path: Path
) -> None:
    topic = topic_name("grows")
    broker.create(topic)
    reading = inlet(source(broker, topic, starting_offsets="latest"), tmp_path)
    take_until(reading, lambda: reading.problem is None)
    send(broker, topic, [row(0)])
    take_until(reading, lambda: reading.tuples == 1)
    broker.grow(topic, 3)
    for partition in (1, 2):
        send(broker, topic, [row(partition)], partition)
    take_until(reading, lambda: reading.tuples == 3)
    assert sorted(numbers(reading)) == [0, 1, 2]
    reading.close()


def test_a_broker_that_dies_is_a_problem_until_it_is_back(broker: Broker, tmp_path: Path) -> None:
    topic = topic_name("dies")
    broker.create(topic)
    send(broker, topic, [row(0)])
    reading = inlet(source(broker, topic), tmp_path)
    take_until(reading, lambda: reading.tuples == 1)
    assert reading.problem is None
    broker.kill()
    take_until(reading, lambda: reading.problem is not None)
    assert reading.problem is not None
    assert broker.servers in reading.problem or topic in reading.problem
    broker.start()
    send(broker, topic, [row(1)])
    take_until(reading, lambda: reading.tuples == 2 and reading.problem is None)
    reading.close()


def test_a_topic_that_is_not_there_yet_is_waited_for(broker: Broker, tmp_path: Path) -> None:
    topic = topic_name("later")
    reading = inlet(source(broker, topic), tmp_path)
    take_until(reading, lambda: "there is no topic" in str(reading.problem))
    broker.create(topic)
    send(broker, topic, [row(0)])
    take_until(reading, lambda: reading.tuples == 1)
    reading.close()


@pytest.mark.parametrize("while_reading", [True, False])
def test_a_topic_that_was_made_again_is_refused_or_read_anew(
    broker: Broker, tmp_path: Path, while_reading: bool
) -> None:
    topic = topic_name("again")
    broker.create(topic)
    send(broker, topic, [row(0), row(1)])
    reading = inlet(source(broker, topic), tmp_path)
    take_until(reading, lambda: reading.tuples == 2)
    kept = json.loads(json.dumps(reading.save()))
    if not while_reading:
        reading.close()
    broker.delete(topic)
    broker.create(topic)
    send(broker, topic, [row(2), row(3), row(4)])
    if not while_reading:
        reading = inlet(source(broker, topic), tmp_path, saved=kept)
    with pytest.raises(InputError, match=r"deleted and made again.*fail_on_data_loss=false"):
        take_until(reading, lambda: False)
    reading.close()
    again = inlet(source(broker, topic, fail_on_data_loss=False), tmp_path, saved=kept)
    take_until(again, lambda: again.tuples == 5)
    assert numbers(again) == [2, 3, 4]
    assert "made again" in dead(again, tmp_path)[-1]["reason"]


def test_records_that_retention_deleted_are_told(broker: Broker, tmp_path: Path) -> None:
    topic = topic_name("retention")
    broker.create(topic)
    send(broker, topic, [row(each) for each in range(5)])
    reading = inlet(source(broker, topic), tmp_path)
    take_until(reading, lambda: reading.tuples == 5)
    kept = saved(reading)
    kept["position"]["offsets"]["0"] = 1
    broker.delete_before(topic, 0, 3)
    refusing = inlet(source(broker, topic), tmp_path, saved=kept)
    with pytest.raises(InputError, match="no offset 1 any more"):
        take_until(refusing, lambda: False)
    refusing.close()
    going_on = inlet(source(broker, topic, fail_on_data_loss=False), tmp_path, saved=kept)
    take_until(going_on, lambda: len(numbers(going_on)) == 2)
    assert numbers(going_on) == [3, 4]
    assert "1 was next, 3 is there" in dead(going_on, tmp_path)[-1]["reason"]


def test_what_a_transaction_took_back_is_not_read_and_the_source_can_end(
    broker: Broker, tmp_path: Path
) -> None:
    topic = topic_name("transactions")
    broker.create(topic)
    producer = kafka.Producer(
        {"bootstrap.servers": broker.servers, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(60)
    for number, keeps in ((0, True), (1, False), (2, True)):
        producer.begin_transaction()
        producer.produce(topic, json.dumps(row(number)))
        if keeps:
            producer.commit_transaction(60)
        else:
            producer.flush(60)
            producer.abort_transaction(60)
    reading = inlet(source(broker, topic, follow=False), tmp_path)
    take_until(reading, lambda: reading.ended)
    assert numbers(reading) == [0, 2]
    reading.close()


def test_a_source_that_was_followed_can_end_and_be_followed_again(
    broker: Broker, tmp_path: Path
) -> None:
    topic = topic_name("ends")
    broker.create(topic, 2)

    def send_rows(*rows: int) -> None:
        for each in rows:
            send(broker, topic, [row(each)], each % 2)

    def reads(follow: bool, kept: dict[str, Any] | None) -> Inlet:
        return inlet(source(broker, topic, follow=follow, lateness=0), tmp_path, saved=kept)

    send_rows(0, 1)
    reading = reads(True, None)
    take_until(reading, lambda: reading.tuples == 2)
    kept = saved(reading)
    send_rows(2, 3)
    reading = reads(False, kept)
    take_until(reading, lambda: reading.ended)
    assert sorted(numbers(reading)) == [2, 3]
    kept = saved(reading)
    send_rows(4, 5)
    # Killed at its end, it comes to the same one, unless it is told that it was there.
    reading = reads(False, kept)
    take_until(reading, lambda: reading.ended)
    assert numbers(reading) == []
    reading.close()
    reading = reads(False, kept)
    reading.look_further()
    take_until(reading, lambda: reading.ended)
    assert sorted(numbers(reading)) == [4, 5]
    kept = saved(reading)
    reading = reads(True, kept)
    send_rows(6, 7)
    take_until(reading, lambda: reading.tuples == 8)
    assert not reading.ended
    assert sorted(numbers(reading)) == [6, 7]
    assert dead(reading, tmp_path) == []


def test_the_end_of_a_topic_that_was_made_again_is_its_own(broker: Broker, tmp_path: Path) -> None:
    topic = topic_name("ends-again")
    broker.create(topic)
    send(broker, topic, [row(each) for each in range(5)])
    chosen = partial(source, broker, topic, follow=False, fail_on_data_loss=False)
    reading = inlet(chosen(), tmp_path)
    take_until(reading, lambda: reading.ended)
    kept = saved(reading)
    # As if it had been killed before its end.
    kept["position"]["offsets"] = {"0": 4}
    broker.delete(topic)
    broker.create(topic)
    send(broker, topic, [row(each) for each in range(5, 8)])
    reading = inlet(chosen(), tmp_path, saved=kept)
    take_until(reading, lambda: reading.ended)
    assert numbers(reading) == [5, 6, 7]
    assert "made again" in dead(reading, tmp_path)[-1]["reason"]
