"""Commits tuples to a Kafka topic, in one transaction with the id after the last.

A producer that has failed is not used again: another one is made, which ends what the old one left
open. No call waits without end, though the library has calls that can: each runs in a thread that
is left behind if it does not come back.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.connect.committing_writer import (
    CommittingWriter,
    StableRows,
    Step,
    TakeBack,
    TentativeRows,
)
from holdfast.connect.json_columns import as_bytes, json_arrays, json_objects
from holdfast.connect.json_values import jsonable
from holdfast.connect.kafka_client import CALL_SECONDS, client_config, kafka
from holdfast.connect.sink import Position
from holdfast.errors import StateError

if TYPE_CHECKING:
    from holdfast.connect.kafka_sink import KafkaSink

STABLE, TENTATIVE, UNDO = b"stable", b"tentative", b"undo"
ID_HEADER, STIME_HEADER = "holdfast-id", "holdfast-stime"
STABILITY_HEADER = "holdfast-stability"
_SYSTEM = ("seq", "stime")
# How records are gathered on their way to a broker.
GATHERING = {
    "linger.ms": 2,
    "compression.type": "lz4",
    "queue.buffering.max.kbytes": 262_144,
}
_ANY_PARTITION = -1
# Values are made for so many records at once: while these are handed over, those before are sent.
_AT_ONCE = 2_000
Key = str | bytes | None
Headers = dict[str, bytes]
# Value, key, time in milliseconds, headers.
Record = tuple[bytes | None, Key, int, Headers]
# A library call gets its own time limit, and a little more before it is left behind.
_LEFT_BEHIND_SECONDS = CALL_SECONDS + 5.0


class KafkaWriter(CommittingWriter):
    """One producer at a time."""

    def __init__(self, sink: KafkaSink, name: str, position: Position | None) -> None:
        super().__init__(str(sink), position, sink.tentative)
        self._topic = sink.topic
        self._tentative_topic = sink.tentative_topic
        self._key = sink.key
        self._name = name
        # The broker keeps it beside the offset.
        self._owner = json.dumps({"writer": sink.writer})
        self._config = client_config(sink.servers, sink.config)
        self._producer: _Producer | None = None
        self._next_id = 0
        # By key, the time of the newest tentative record that stands on a topic with keys.
        self._standing: dict[Key, int] = {}

    def committed(self) -> int:
        if self._producer is None:
            producer = _Producer(self._config, self._name)
            # From here on no older producer of this name can commit, and nothing is open.
            producer.call(lambda: producer.library.init_transactions(CALL_SECONDS))
            self._next_id = producer.call(lambda: producer.found(self._topic, self._owner))
            self._producer = producer
        return self._next_id

    def commit(self, steps: list[Step], next_id: int) -> None:
        producer = self._producer
        assert producer is not None
        self._producer = None  # until it has done it
        producer.call(producer.library.begin_transaction)
        for step in steps:
            producer.call(partial(self._produce, producer, step))
        producer.call(lambda: producer.keep(self._topic, next_id, self._owner))
        producer.call(lambda: producer.library.commit_transaction(CALL_SECONDS))
        self._producer, self._next_id = producer, next_id

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _produce(self, producer: _Producer, step: Step) -> None:
        match step:
            case StableRows(table):
                self._records(producer, self._topic, table, STABLE)
            case TentativeRows(table):
                self._records(producer, self._tentative_topic, table, TENTATIVE)
            case TakeBack(below_stime):
                self._take_back(producer, below_stime)

    def _records(self, producer: _Producer, topic: str, table: pa.Table, stability: bytes) -> None:
        for first in range(0, table.num_rows, _AT_ONCE):
            some = table.slice(first, _AT_ONCE)
            producer.produce(topic, self._made(some, stability))

    def _made(self, table: pa.Table, stability: bytes) -> Iterator[Record]:
        """The records. What they consist of is made by columns; each is to be used at once."""
        own = [name for name in table.column_names if name not in _SYSTEM]
        values, keys = json_objects(table.select(own)), self._keys(table)
        stimes = table["stime"].cast(pa.int64()).combine_chunks()
        if stability is TENTATIVE and self._key:
            self._standing.update(zip(keys, stimes.to_pylist(), strict=True))
        stamps = np.maximum(stimes.to_numpy() // 1000, 0).tolist()
        ids = _texts(table["seq"]) if stability is STABLE else None
        headers = _headers(_texts(stimes), stability, ids)
        return zip(values, keys, stamps, headers, strict=True)

    def _take_back(self, producer: _Producer, below_stime: int) -> None:
        """With keys, a tombstone for each that is taken back; without, one record that says so."""
        headers = {STIME_HEADER: b"%d" % below_stime, STABILITY_HEADER: UNDO}
        topic, stamp = self._tentative_topic, max(0, below_stime // 1000)
        if not self._key:
            producer.produce(topic, [(b"{}", None, stamp, headers)])
            return
        gone = [key for key, stime in self._standing.items() if stime < below_stime]
        producer.produce(topic, [(None, key, stamp, headers) for key in gone])
        for key in gone:
            del self._standing[key]

    def _keys(self, table: pa.Table) -> list[Key]:
        if not self._key:
            return [None] * table.num_rows
        if len(self._key) > 1:
            return [*json_arrays(table.select(self._key))]
        column = table[self._key[0]]
        if pa.types.is_integer(column.type):
            return [*_texts(column)]
        return [_key_text(each) for each in column.to_pylist()]


def _texts(numbers: pa.Array | pa.ChunkedArray) -> list[bytes]:
    return as_bytes(numbers.cast(pa.string()))


def _headers(stimes: list[bytes], stability: bytes, ids: list[bytes] | None) -> Iterator[Headers]:
    """The headers of each record: the same dict each time, as the library copies what is in it.

    One of its own for each record would cost as much as making its value.
    """
    headers = {STIME_HEADER: b"", STABILITY_HEADER: stability}
    if ids is None:
        for stime in stimes:
            headers[STIME_HEADER] = stime
            yield headers
        return
    for stime, number in zip(stimes, ids, strict=True):
        headers[STIME_HEADER] = stime
        headers[ID_HEADER] = number
        yield headers


def _key_text(value: object) -> Key:
    if value is None or isinstance(value, str | bytes):
        return value
    plain = jsonable(value)
    return plain if isinstance(plain, str) else json.dumps(plain)


class _Producer:
    """A transactional producer, and a thread of its own that calls it."""

    def __init__(self, config: dict[str, Any], name: str) -> None:
        self._name = name
        self._config = config
        # Of the group that has the ids; known once they were asked for.
        self._metadata: Any = None
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]] | None]
        self._calls = queue.SimpleQueue()
        self.library = kafka().Producer(
            {
                **GATHERING,
                # The same partitions as the clients of Java and Spark choose.
                "partitioner": "murmur2_random",
                **config,
                "transactional.id": name,
                "transaction.timeout.ms": 60_000,
                "acks": "all",
            }
        )
        threading.Thread(target=self._serve, name=f"kafka {name}", daemon=True).start()

    def call(self, what: Callable[[], Any]) -> Any:
        """The answer; OSError if it fails or does not come, and then this one is of no more use."""
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._calls.put((what, answer))
        try:
            found = answer.get(timeout=_LEFT_BEHIND_SECONDS)
        except queue.Empty:
            self._calls.put(None)
            raise ConnectionError("Kafka's client does not come back; a new one is made") from None
        if isinstance(found, BaseException):
            self.close()
            raise self._explained(found)
        return found

    def produce(self, topic: str, records: Iterable[Record]) -> None:
        """Hand over records; waits while the library's queue is full.

        One call each: the library has none that takes many with headers. Arguments by place, which
        it reads faster than names.
        """
        produce = self.library.produce
        for value, key, stamp, headers in records:
            try:
                produce(topic, value, key, _ANY_PARTITION, None, None, stamp, headers)
            except BufferError:
                self._wait_for_room(
                    partial(produce, topic, value, key, _ANY_PARTITION, None, None, stamp, headers)
                )

    def _wait_for_room(self, produce: Callable[[], None]) -> None:
        deadline = time.monotonic() + CALL_SECONDS
        while True:
            self.library.poll(0.01)
            try:
                return produce()
            except BufferError:
                if time.monotonic() > deadline:
                    raise ConnectionError("Kafka takes no more records") from None

    def close(self) -> None:
        """Let it go; what is open in it is taken back by the broker or by the next one."""
        self._calls.put(None)

    def found(self, topic: str, owner: str) -> int:
        """The id that was committed last by this owner."""
        consumer = kafka().Consumer(
            {**self._config, "group.id": self._name, "isolation.level": "read_committed"}
        )
        try:
            self._metadata = consumer.consumer_group_metadata()
            (place,) = consumer.committed([kafka().TopicPartition(topic, 0)], CALL_SECONDS)
        finally:
            consumer.close()
        if place.error is not None:
            raise kafka().KafkaException(place.error)
        return int(place.offset) if place.offset >= 0 and place.metadata == owner else 0

    def keep(self, topic: str, next_id: int, owner: str) -> None:
        """Commit the id with the transaction that is open."""
        place = kafka().TopicPartition(topic, 0, next_id, metadata=owner)
        self.library.send_offsets_to_transaction([place], self._metadata, CALL_SECONDS)

    def _serve(self) -> None:
        """Its thread: also what takes the time to let it go."""
        while (call := self._calls.get()) is not None:
            what, answer = call
            try:
                answer.put(what())
            except BaseException as error:
                answer.put(error)
        self.library.purge()
        del self.library

    def _explained(self, error: BaseException) -> BaseException:
        module = kafka()
        if not isinstance(error, module.KafkaException):
            return error
        codes, found = module.KafkaError, error.args[0]
        fenced = (codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH)
        if found.code() in fenced:
            return StateError(
                f"another writer has taken over as {self._name!r}; there must be one only. Give "
                f"them different names: transactional_id=..."
            )
        return ConnectionError(f"Kafka: {found.str()}")
