"""Values of records as columns: JSON, Avro, Protobuf, with and without a registry's framing."""

from __future__ import annotations

import datetime
import io
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    timestamp_pb2,
)

from holdfast.connect.record_formats import Decoder, Format, RegistryFailed
from holdfast.errors import InputError
from holdfast.frames import TIME

COLUMNS = pa.schema([pa.field("at", TIME), pa.field("server", pa.string())])
AT = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "server", "type": ["null", "string"]},
    ],
}
ROWS = [{"at": AT, "server": "a"}, {"at": AT, "server": None}]


class Registry:
    """As much of a schema registry as clients ask for: it gives schemas numbers and keeps them."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.status = 200
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if sent not in registry.schemas:
                    registry.schemas.append(sent)
                number = registry.schemas.index(sent) + 1
                self.answer({"id": number, "version": 1, "subject": "s", **sent})

            def do_GET(self) -> None:
                place = self.path.partition("?")[0].split("/")
                if place[1:3] == ["schemas", "ids"]:
                    number = int(place[3])
                    if number > len(registry.schemas):
                        self.answer({"error_code": 40403, "message": "Schema not found"}, 404)
                        return
                    self.answer({"schemaType": "AVRO", **registry.schemas[number - 1]})
                else:
                    self.answer({"error_code": 40401, "message": "Subject not found"}, 404)

            def answer(self, body: dict[str, Any], status: int = 200) -> None:
                data = json.dumps(body).encode()
                self.send_response(registry.status if status == 200 else status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def registry() -> Iterator[Registry]:
    started = Registry()
    yield started
    started.close()


def context() -> SerializationContext:
    return SerializationContext("readings", MessageField.VALUE)


def test_json_values_are_rows_however_they_are_laid_out() -> None:
    decoder = Decoder(Format("json"), COLUMNS, "readings")
    odd: list[bytes | None] = [b"{", b'{"server": 1}', None, b"{}{}", b""]
    values = [b'{"server": "a"}', b' {"server":\n "b"} \n', *odd]
    found = decoder.decode([*values, b'{"server": "c"}'])
    assert found.table["server"].to_pylist() == ["a", "b", "c"]
    assert list(found.good) == [0, 1, 7]
    assert sorted(found.bad) == [2, 3, 4, 5, 6]
    assert "tombstone" in found.bad[4]


def test_two_values_that_make_one_row_together_are_none() -> None:
    decoder = Decoder(Format("json"), COLUMNS, "readings")
    found = decoder.decode([b'{"server": "a",', b'"at": "2024-01-01"}', b'{"server": "b"}{}'])
    assert list(found.good) == []
    assert sorted(found.bad) == [0, 1, 2]


def test_avro_values_by_a_schema_file(tmp_path: Path) -> None:
    (tmp_path / "reading.avsc").write_text(json.dumps(SCHEMA))
    decoder = Decoder(Format("avro", schema=str(tmp_path / "reading.avsc")), COLUMNS, "readings")
    values = []
    for row in ROWS:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, fastavro.parse_schema(SCHEMA), row)
        values.append(written.getvalue())
    found = decoder.decode([values[0], values[0] + b"\0", values[1], b"\x80"])
    assert found.table.to_pylist() == ROWS
    assert sorted(found.bad) == [1, 3]
    assert "1 bytes are left over" in found.bad[1]


def test_a_missing_schema_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"name a registry, or the file"):
        Decoder(Format("avro"), COLUMNS, "readings")
    with pytest.raises(InputError, match=r"nothing.avsc.*cannot be read"):
        Decoder(Format("avro", schema=str(tmp_path / "nothing.avsc")), COLUMNS, "readings")
    with pytest.raises(InputError, match="module:Class"):
        Decoder(Format("protobuf"), COLUMNS, "readings")
    with pytest.raises(InputError, match=r"json:Reading|no message 'Reading'"):
        Decoder(Format("protobuf", schema="json:Reading"), COLUMNS, "readings")


def test_avro_values_by_a_registry(registry: Registry) -> None:
    serializer = AvroSerializer(SchemaRegistryClient({"url": registry.address}), json.dumps(SCHEMA))
    values = [serializer(row, context()) for row in ROWS]
    decoder = Decoder(Format("avro", registry=registry.address), COLUMNS, "readings")
    unknown = b"\0\0\0\0\x63" + values[0][5:]
    found = decoder.decode([values[0], b"no frame", unknown, values[1]])
    assert found.table.to_pylist() == ROWS
    assert sorted(found.bad) == [1, 2]
    assert "registry" in found.bad[2]


def test_a_registry_that_does_not_answer_makes_nothing_a_dead_letter(registry: Registry) -> None:
    serializer = AvroSerializer(SchemaRegistryClient({"url": registry.address}), json.dumps(SCHEMA))
    value = serializer(ROWS[0], context())
    decoder = Decoder(Format("avro", registry=registry.address), COLUMNS, "readings")
    registry.close()
    with pytest.raises(RegistryFailed):
        decoder.decode([value])


@pytest.fixture
def message(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A message class in a module, as protoc would make it."""
    file = descriptor_pb2.FileDescriptorProto(
        name="reading.proto",
        package="tests",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    made = file.message_type.add(name="Reading")
    kinds = descriptor_pb2.FieldDescriptorProto
    made.field.add(name="server", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    made.field.add(
        name="at",
        number=2,
        type=kinds.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=kinds.LABEL_OPTIONAL,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    found = message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.Reading"))
    module = ModuleType("reading_pb2")
    module.Reading = found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "reading_pb2", module)
    return found


def test_protobuf_values_with_and_without_a_registry(registry: Registry, message: Any) -> None:
    name = "reading_pb2:Reading"
    reading = message(server="a")
    reading.at.FromDatetime(AT)
    plain = Decoder(Format("protobuf", schema=name), COLUMNS, "readings")
    found = plain.decode([reading.SerializeToString(), b"\xff", b""])
    assert found.table.to_pylist() == [{"at": AT, "server": "a"}, {"at": None, "server": ""}]
    assert sorted(found.bad) == [1]
    serializer = ProtobufSerializer(message, SchemaRegistryClient({"url": registry.address}))
    framed = serializer(reading, context())
    decoder = Decoder(Format("protobuf", registry.address, name), COLUMNS, "readings")
    decoded = decoder.decode([framed])
    assert decoded.bad == {}
    assert decoded.table.to_pylist() == [{"at": AT, "server": "a"}]
