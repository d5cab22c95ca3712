"""Commits tuples to a Kafka topic, in one transaction with the id after the last.

A producer that has failed is not used again: another one is made, which ends what the old one left
open.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

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
from holdfast.connect.kafka_client import CALL_SECONDS, client_config
from holdfast.connect.kafka_producer import Headers, Key, Producer, Record
from holdfast.connect.sink import Position

if TYPE_CHECKING:
    from holdfast.connect.kafka_sink import KafkaSink

STABLE, TENTATIVE, UNDO = b"stable", b"tentative", b"undo"
ID_HEADER, STIME_HEADER = "holdfast-id", "holdfast-stime"
STABILITY_HEADER = "holdfast-stability"
_SYSTEM = ("seq", "stime")
# Values are made for so many records at once: while these are handed over, those before are sent.
_AT_ONCE = 4_000


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
        self._producer: Producer | None = None
        self._next_id = 0
        # By key, the time of the newest tentative record that stands on a topic with keys.
        self._standing: dict[Key, int] = {}

    def committed(self) -> int:
        if self._producer is None:
            producer = Producer(self._config, self._name)
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

    def _produce(self, producer: Producer, step: Step) -> None:
        match step:
            case StableRows(table):
                self._records(producer, self._topic, table, STABLE)
            case TentativeRows(table):
                self._records(producer, self._tentative_topic, table, TENTATIVE)
            case TakeBack(below_stime):
                self._take_back(producer, below_stime)

    def _records(self, producer: Producer, topic: str, table: pa.Table, stability: bytes) -> None:
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

    def _take_back(self, producer: Producer, below_stime: int) -> None:
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
