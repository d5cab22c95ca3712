"""What the values of records are, and how many of them become columns at once.

JSON is parsed by Arrow, all values of a batch in one call. Avro and Protobuf are read by their own
libraries, a value at a time. Where a batch cannot be decoded it is halved until the records that
cannot be stand alone: each is a dead letter with its place in the topic.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.connect.extras import library
from holdfast.connect.jsonl_source import JsonParser, explain
from holdfast.errors import HoldfastError, InputError

FORMATS = ("json", "avro", "protobuf", "raw")
# What Confluent's serializers put in front: a zero byte and the number of the schema.
_FRAME_BYTES = 5
_NOT_FOUND = 404
_NEW_LINE, _OPENS, _CLOSES = b"\n{}"


class RegistryFailed(HoldfastError):
    """The registry did not say what a schema is: nothing can be decoded, and nothing is bad."""


@dataclass(frozen=True)
class Format:
    """How values are written; see ``read_kafka``."""

    name: str
    registry: str | None = None
    schema: str | None = None


@dataclass(frozen=True)
class Decoded:
    """The rows, which values they came from, and why the others are none."""

    table: pa.Table
    good: Sequence[int]
    bad: dict[int, str]


Parse = Callable[[list[bytes]], pa.Table]


class Decoder:
    """Makes columns of values."""

    def __init__(self, format: Format, schema: pa.Schema, topic: str) -> None:
        """``schema`` are the columns that values bring."""
        asks = format.registry is not None and format.name in ("avro", "protobuf")
        self._registry = _registry(format.registry) if asks else None
        self._parse = _parser(format, schema, topic, self._registry)

    def close(self) -> None:
        """Let go of the registry, if one is asked."""
        if self._registry is not None:
            self._registry.close()

    def decode(self, values: list[Any]) -> Decoded:
        """A tombstone, which has no value, is no row."""
        if not values.count(None):
            try:
                return Decoded(self._parse(values), range(len(values)), {})
            except RegistryFailed:
                raise
            except Exception:  # some of them are bad: which is found below
                pass
        return self._decode_good(values)

    def _decode_good(self, values: Sequence[bytes | None]) -> Decoded:
        """Each value that can be decoded, and why the others cannot."""
        bad = {
            number: "it has no value (a tombstone)"
            for number, value in enumerate(values)
            if value is None
        }
        good = [number for number in range(len(values)) if number not in bad] if bad else None
        numbers = range(len(values)) if good is None else good
        tables: list[pa.Table] = []
        taken: list[int] = []
        parts: list[Sequence[int]] = [numbers] if len(numbers) else []
        while parts:
            part = parts.pop()
            try:
                tables.append(self._parse([values[number] or b"" for number in part]))
                taken += part
            except RegistryFailed:
                raise
            except Exception as error:  # whatever the libraries raise about a value
                if len(part) == 1:
                    bad[part[0]] = _reason(error)
                else:
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]
        table = pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
        return Decoded(table, taken, bad)


def _reason(error: Exception) -> str:
    if isinstance(error, pa.ArrowException):
        return explain(str(error).splitlines()[0])
    text = str(error).strip() or type(error).__name__
    return f"it cannot be decoded: {text.splitlines()[0]}"


def _parser(format: Format, schema: pa.Schema, topic: str, registry: Any) -> Parse:
    match format.name:
        case "json":
            return _json(format, schema)
        case "avro":
            return _avro(format, schema, topic, registry)
        case "protobuf":
            return _protobuf(format, schema, topic, registry)
        case _:
            return lambda values: pa.table({"value": pa.array(values, pa.binary())})


def _json(format: Format, schema: pa.Schema) -> Parse:
    parser = JsonParser(schema)

    def parse(values: list[bytes]) -> pa.Table:
        if format.registry is not None:
            values = [_unframed(value) for value in values]
        # A line for each; the last new line comes with the join, which spares a copy.
        block = b"\n".join([*values, b""])
        if not _are_objects(block, len(values)):
            # Another new line can be between tokens only: in texts it is escaped.
            values = [value.strip().replace(b"\n", b" ") for value in values]
            block = b"\n".join([*values, b""])
            if not _are_objects(block, len(values)):
                raise pa.ArrowInvalid("a value is an object, from { to }")
        return parser.table(block, len(values))

    return parse


def _are_objects(block: bytes, lines: int) -> bool:
    """Whether each line is from { to }: else two might make one object, and another two."""
    characters = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(characters == _NEW_LINE)
    if len(ends) != lines or not block.startswith(b"{"):
        return False
    firsts, lasts = characters[ends[:-1] + 1], characters[ends - 1]
    return bool((firsts == _OPENS).all() and (lasts == _CLOSES).all())


def _unframed(value: bytes) -> bytes:
    if len(value) < _FRAME_BYTES or value[0] != 0:
        raise ValueError("it does not begin with the number of a schema, as a registry's would")
    return value[_FRAME_BYTES:]


def _avro(format: Format, schema: pa.Schema, topic: str, registry: Any) -> Parse:
    if registry is not None:
        module = library("confluent_kafka.schema_registry.avro", "kafka")
        read = _by_registry(module.AvroDeserializer(registry), topic)
    else:
        fastavro = library("fastavro", "kafka")
        written = fastavro.parse_schema(_schema_file(format))

        def read(value: bytes) -> Any:
            stream = io.BytesIO(value)
            row = fastavro.schemaless_reader(stream, written, None)
            if stream.tell() != len(value):
                raise ValueError(f"{len(value) - stream.tell()} bytes are left over")
            return row

    def parse(values: list[bytes]) -> pa.Table:
        rows = [read(value) for value in values]
        return pa.table({name: pa.array([row.get(name) for row in rows]) for name in schema.names})

    return parse


def _protobuf(format: Format, schema: pa.Schema, topic: str, registry: Any) -> Parse:
    if format.schema is None or ":" not in format.schema:
        raise InputError(
            "for Protobuf say which message values are, as schema='module:Class'; protoc makes the "
            "module"
        )
    module, _, name = format.schema.partition(":")
    message = getattr(library(module, "kafka"), name, None)
    if message is None:
        raise InputError(f"the module {module!r} has no message {name!r}")
    read = message.FromString
    if registry is not None:
        made = library("confluent_kafka.schema_registry.protobuf", "kafka").ProtobufDeserializer(
            message, {"use.deprecated.format": False}, registry
        )
        read = _by_registry(made, topic)

    def parse(values: list[bytes]) -> pa.Table:
        messages = [read(value) for value in values]
        return pa.table(
            {
                field.name: pa.array([_field(each, field.name) for each in messages])
                for field in schema
            }
        )

    return parse


def _field(message: Any, name: str) -> object:
    """A field's value; None if it is not there."""
    descriptor = message.DESCRIPTOR.fields_by_name.get(name)
    if descriptor is None or (descriptor.has_presence and not message.HasField(name)):
        return None
    value = getattr(message, name)
    if hasattr(value, "DESCRIPTOR"):
        if value.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
            return value.ToDatetime(tzinfo=_utc())
        return library("google.protobuf.json_format", "kafka").MessageToDict(
            value, preserving_proto_field_name=True
        )
    return list(value) if descriptor.is_repeated else value


def _utc() -> Any:
    import datetime

    return datetime.UTC


def _registry(address: str | None) -> Any:
    module = library("confluent_kafka.schema_registry", "kafka")
    return module.SchemaRegistryClient({"url": address})


def _by_registry(deserializer: Any, topic: str) -> Callable[[bytes], Any]:
    serialization = library("confluent_kafka.serialization", "kafka")
    failed = library("confluent_kafka.schema_registry.error", "kafka").SchemaRegistryError
    context = serialization.SerializationContext(topic, serialization.MessageField.VALUE)

    def read(value: bytes) -> Any:
        try:
            return deserializer(value, context)
        except failed as error:
            if error.http_status_code == _NOT_FOUND:
                raise ValueError(f"the registry knows no such schema: {error}") from None
            raise RegistryFailed(f"the schema registry: {error}") from None
        except OSError as error:
            raise RegistryFailed(f"the schema registry: {error}") from None
        except Exception as error:
            if type(error).__module__.startswith("httpx"):  # it does not answer
                raise RegistryFailed(f"the schema registry: {error}") from None
            raise

    return read


def _schema_file(format: Format) -> Any:
    if format.schema is None:
        raise InputError("for Avro name a registry, or the file of the schema: schema=order.avsc")
    try:
        return json.loads(Path(format.schema).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"the Avro schema {format.schema!r} cannot be read: {error}") from None
