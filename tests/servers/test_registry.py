"""Values with a schema registry's framing, against a real registry and a real broker."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from benchmarks.java_servers import RegistryServer
from benchmarks.kafka_broker import Broker
from holdfast.connect.kafka_source import read_kafka
from tests.connect.support import inlet
from tests.servers.support import letters, send, take_until, topic_name

pytestmark = [pytest.mark.thorough]

AT = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with RegistryServer(tmp_path_factory.mktemp("registry")) as started:
        yield started


def avro_schema(*more: dict[str, Any]) -> str:
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "server", "type": "string"},
        {"name": "cpu", "type": "double"},
        *more,
    ]
    return json.dumps({"type": "record", "name": "Reading", "fields": fields})


JSON_SCHEMA = json.dumps(
    {
        "title": "Reading",
        "type": "object",
        "properties": {
            "at": {"type": "string"},
            "server": {"type": "string"},
            "cpu": {"type": "number"},
        },
        "required": ["at", "server"],
    }
)


def protobuf_message() -> Any:
    """A message class in a module, as protoc would make it."""
    file = descriptor_pb2.FileDescriptorProto(
        name="real_reading.proto", package="tests", syntax="proto3"
    )
    made = file.message_type.add(name="Reading")
    kinds = descriptor_pb2.FieldDescriptorProto
    fields = {"at": kinds.TYPE_STRING, "server": kinds.TYPE_STRING, "cpu": kinds.TYPE_DOUBLE}
    for number, (name, kind) in enumerate(fields.items(), 1):
        made.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.Reading"))


def values(
    format: str, registry: RegistryServer, topic: str, rows: list[dict[str, Any]]
) -> list[bytes]:
    """The rows as the libraries of producers write them, with the schema registered."""
    with SchemaRegistryClient({"url": registry.address}) as client:
        return framed_by(client, format, topic, rows)


def framed_by(client: Any, format: str, topic: str, rows: list[dict[str, Any]]) -> list[bytes]:
    context = SerializationContext(topic, MessageField.VALUE)
    match format:
        case "avro":
            serializer: Any = AvroSerializer(client, avro_schema())
        case "json":
            # What the library's serializer does; it would want a validator of schemas, too.
            number = client.register_schema(f"{topic}-value", Schema(JSON_SCHEMA, "JSON"))
            frame = b"\0" + number.to_bytes(4, "big")
            texts = [json.dumps({**row, "at": row["at"].isoformat()}) for row in rows]
            return [frame + text.encode() for text in texts]
        case _:
            message = sys.modules["real_reading_pb2"].Reading
            serializer = ProtobufSerializer(message, client, {"use.deprecated.format": False})
            made = [message(**{**row, "at": row["at"].isoformat()}) for row in rows]
            return [serializer(each, context) for each in made]
    return [serializer(row, context) for row in rows]


@pytest.mark.parametrize("format", ["json", "avro", "protobuf"])
def test_values_that_producers_registered_are_read(
    broker: Broker,
    registry: RegistryServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
) -> None:
    module = ModuleType("real_reading_pb2")
    module.Reading = protobuf_message()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "real_reading_pb2", module)
    topic = topic_name(f"registered-{format}")
    broker.create(topic)
    rows = [{"at": AT, "server": f"s{number}", "cpu": float(number)} for number in range(20)]
    framed = values(format, registry, topic, rows)
    assert framed[0][0] == 0, "the frame of a registry begins with a zero"
    send(broker, topic, [*framed[:10], b"no frame", *framed[10:]])
    reading = inlet(
        read_kafka(
            topic,
            servers=broker.servers,
            format=format,
            registry=registry.address,
            schema="real_reading_pb2:Reading" if format == "protobuf" else None,
            lateness="1 hour",
            future_limit="off",
        ),
        tmp_path,
    )
    take_until(reading, lambda: reading.tuples + reading.dead == 21)
    assert reading.waiting().select(["at", "server", "cpu"]).to_pylist() == rows
    reading.close()
    reading._dead_letters.flush()
    reading._dead_letters.close()
    (letter,) = letters(tmp_path)
    assert letter["row"]["kafka_topic"] == topic
    assert letter["row"]["kafka_partition"] == 0
    assert letter["row"]["kafka_offset"] == 10


def test_avro_is_read_by_the_schema_that_each_record_names(
    broker: Broker, registry: RegistryServer, tmp_path: Path
) -> None:
    """A producer that has gained a field, between others that have not."""
    topic = topic_name("evolved")
    broker.create(topic)
    context = SerializationContext(topic, MessageField.VALUE)
    row = {"at": AT, "server": "a", "cpu": 1.0}
    zone = {"name": "zone", "type": ["null", "string"], "default": None}
    with SchemaRegistryClient({"url": registry.address}) as client:
        old, new = AvroSerializer(client, avro_schema()), AvroSerializer(client, avro_schema(zone))
        send(broker, topic, [old(row, context), new({**row, "zone": "west"}, context)] * 2)
    source = read_kafka(
        topic,
        servers=broker.servers,
        format="avro",
        registry=registry.address,
        lateness="1 hour",
        future_limit="off",
    )
    reading = inlet(source, tmp_path)
    take_until(reading, lambda: reading.tuples == 4)
    assert reading.dead == 0
    assert reading.waiting()["server"].to_pylist() == ["a"] * 4
    reading.close()
