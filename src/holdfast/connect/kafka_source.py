"""Records of a Kafka topic, its partitions in parallel.

    read_kafka("orders", servers="kafka-1:9092 kafka-2:9092", format="json")

Each partition is a lane: it has a boundary of its own, and one that is at its end and quiet holds
nobody back. The position is the offset of each partition, and the id of the topic, because offsets
mean nothing in a topic that was deleted and made again. Nothing is kept in Kafka: what counts is
in the log and the ledger, or in the checkpoint, together with the rows.

Besides the fields of its value, a record has columns that a schema may declare: ``kafka_timestamp``
(its time), ``kafka_key``, ``kafka_topic``, ``kafka_partition`` and ``kafka_offset``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

import pyarrow as pa

from holdfast.connect.kafka_client import Config, client_config
from holdfast.connect.record_formats import FORMATS, Format
from holdfast.connect.source import Position, Reader, Source, TimeOptions
from holdfast.errors import InputError
from holdfast.times import Duration

STARTING = ("earliest", "latest")


@dataclass(frozen=True)
class KafkaSource(Source):
    """A topic."""

    topic: str
    servers: str
    format: Format
    starting_offsets: str
    fail_on_data_loss: bool
    follow: bool
    group: str | None
    config: Config | str | None = field(repr=False)

    @property
    def live(self) -> bool:
        return self.follow

    @property
    def has_lanes(self) -> bool:
        return True

    @property
    def identity(self) -> str:
        return f"KafkaSource {self.topic}"

    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        from holdfast.connect.kafka_reader import KafkaReader

        return KafkaReader(self, schema, position)

    def __str__(self) -> str:
        return f"Kafka topic {self.topic}"


def read_kafka(
    topic: str,
    *,
    servers: str,
    format: str = "json",
    registry: str | None = None,
    schema: str | None = None,
    starting_offsets: str = "earliest",
    fail_on_data_loss: bool = True,
    follow: bool = True,
    group: str | None = None,
    config: Config | str | None = None,
    lateness: Duration | int | None = None,
    **time: Unpack[TimeOptions],
) -> KafkaSource:
    """Records of a topic, each exactly once.

    servers            host:port of one or more brokers, separated by blanks.
    format             what a value is: "json", "avro", "protobuf", or "raw" for a column ``value``
                       with its bytes.
    registry           the address of a schema registry; values then have its framing.
    schema             without a registry, the file of the Avro schema; for Protobuf always
                       the class of the message, as "module:Class".
    starting_offsets   "earliest", or "latest" for records that come from now on.
    fail_on_data_loss  stop when records are gone before they were read: deleted by retention, or
                       with their topic. False goes on with what is there and says so in a dead
                       letter.
    follow             wait for more; False ends the source at the end that was there at its start,
                       also if it is killed and goes on. A run after one that came to it ends where
                       the topic ends by then.
    group              a consumer group that is told the offsets, for tools that show how far
                       readers are. Nothing is read from it.
    config             more settings of librdkafka, or the path of a file with them.
    """
    if starting_offsets not in STARTING:
        raise InputError(f"starting_offsets is one of {STARTING}; got {starting_offsets!r}")
    if format not in FORMATS:
        raise InputError(f"format is one of {FORMATS}; got {format!r}")
    client_config(servers, None)
    return KafkaSource(
        lateness,
        topic,
        servers,
        Format(format, registry, schema),
        starting_offsets,
        fail_on_data_loss,
        follow,
        group,
        config,
        **time,
    )
