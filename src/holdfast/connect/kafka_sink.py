"""Results as records of a Kafka topic, in transactions: each once for readers of what is committed.

    write_kafka("busy", servers="kafka-1:9092", key="server")

A value is a JSON object with the output's columns; the key is a column, or several as a JSON array.
The headers ``holdfast-id``, ``holdfast-stime`` (microseconds) and ``holdfast-stability`` say which
tuple it is. The id after the last one is committed in the same transaction, as the offset of a
consumer group that has the transactional id as its name; there it is found again.

Tentative tuples go to a topic of their own, or among the others, marked. With a key they are
upserts: the stable record of the key comes in its place, and one that is taken back without a
successor is a tombstone. The key must name a result, with its window, for that. Without a key, a
record with ``holdfast-stability`` undo says below which time tentative ones do not count any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.connect.committing_sink import CommittingSink
from holdfast.connect.kafka_client import Config, client_config
from holdfast.connect.sink import Position, Writer
from holdfast.errors import InputError
from holdfast.times import Duration


@dataclass(frozen=True)
class KafkaSink(CommittingSink):
    """A topic."""

    topic: str
    servers: str
    key: tuple[str, ...]
    transactional_id: str | None
    config: Config | str | None = field(repr=False)
    own_topic: str | None = None

    @property
    def tentative_topic(self) -> str:
        return self.own_topic or self.topic

    @property
    def identity(self) -> str:
        return f"KafkaSink {self.topic}"

    def open(self, output: str, schema: pa.Schema, position: Position | None) -> Writer:
        from holdfast.connect.kafka_writer import KafkaWriter

        for each in self.key:
            if each not in schema.names:
                raise InputError(
                    f"there is no column {each!r} to be the key; there are {schema.names}"
                )
        name = self.transactional_id or f"holdfast-{self.topic}-{output}"
        return KafkaWriter(self, name, position)

    def __str__(self) -> str:
        return f"Kafka topic {self.topic}"


def write_kafka(
    topic: str,
    *,
    servers: str,
    key: str = "",
    transactional_id: str | None = None,
    commit_interval: Duration = "100 ms",
    tentative: bool | str = False,
    config: Config | str | None = None,
) -> KafkaSink:
    """Write tuples as records of a topic, each exactly once for readers of committed records.

    servers           host:port of one or more brokers, separated by blanks.
    key               columns that are the record's key, separated by blanks; by default none.
    transactional_id  who writes; a second writer of the same name ends the first. By default
                      the topic and the output.
    commit_interval   how often a client commits; ``holdfast run`` commits at its checkpoints.
    tentative         also write tentative results: True among the others, marked; or the name
                      of a topic for them.
    config            more settings of librdkafka, or the path of a file with them.
    """
    client_config(servers, None)
    return KafkaSink(
        topic,
        servers,
        tuple(key.split()),
        transactional_id,
        config,
        tentative if isinstance(tentative, str) else None,
        commit_interval=commit_interval,
        tentative=bool(tentative),
    )
