"""Files with one JSON object a line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import pyarrow as pa
import pyarrow.json as arrow_json

from holdfast.connect.lines import BLOCK_BYTES, LineFile, joined, parse_lines
from holdfast.connect.source import Chunk, Position, Reader, Source, TimeOptions, existing_file
from holdfast.times import Duration


@dataclass(frozen=True)
class JsonLinesSource(Source):
    """A JSON lines file."""

    path: str
    follow: bool
    block_bytes: int

    @property
    def live(self) -> bool:
        return self.follow

    def check(self) -> None:
        existing_file(self.path)

    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        return JsonLinesReader(self, schema, position or {})

    def __str__(self) -> str:
        return f"JSON lines file {self.path}"


def read_jsonl(
    path: str | Path,
    *,
    follow: bool = False,
    lateness: Duration | int | None = None,
    block_bytes: int = BLOCK_BYTES,
    **time: Unpack[TimeOptions],
) -> JsonLinesSource:
    """Rows of a file with one JSON object a line; a missing field is null, others are ignored.

    Timestamps and dates are ISO 8601 texts. ``follow`` waits for more at the end of the file.
    """
    return JsonLinesSource(lateness, str(path), follow, block_bytes, **time)


class JsonLinesReader(Reader):
    """Reads blocks of lines; a line that does not fit is found by halving its block."""

    def __init__(self, source: JsonLinesSource, schema: pa.Schema, position: Position) -> None:
        path = existing_file(source.path)
        self._parser = JsonParser(schema)
        offset = position.get("offset", 0)
        self._lines = LineFile(path, offset, source.block_bytes, source.follow)

    def read(self) -> Chunk | None:
        block = self._lines.read()
        self.ended = self._lines.ended
        return self._parser.parse(block)

    @property
    def position(self) -> Position:
        return {"offset": self._lines.offset}

    def close(self) -> None:
        self._lines.close()


# Below this a second thread costs more than it brings.
_WORTH_HALVING = 256 << 10
# About a line: so that there are two parts and not three.
_LINE_BYTES = 1 << 10


class JsonParser:
    """Turns lines into columns."""

    def __init__(self, schema: pa.Schema) -> None:
        fields = [pa.field(field.name, _readable(field.type)) for field in schema]
        self._schema = pa.schema(fields)
        self._options = arrow_json.ParseOptions(
            explicit_schema=self._schema,
            newlines_in_values=False,
            unexpected_field_behavior="ignore",
        )

    def parse(self, block: bytes) -> Chunk | None:
        return joined(parse_lines(block, self._parse, explain))

    def _parse(self, block: bytes) -> Chunk:
        return Chunk(self.table(block, len([line for line in block.split(b"\n") if line.strip()])))

    def table(self, block: bytes, lines: int) -> pa.Table:
        """So many lines as rows; an Arrow exception if one of them is no object as declared."""
        # Two halves at once where they are large enough to be worth it.
        halves = len(block) >= _WORTH_HALVING
        size = len(block) // 2 + _LINE_BYTES if halves else len(block) + 1
        table = arrow_json.read_json(
            pa.BufferReader(block),
            arrow_json.ReadOptions(use_threads=halves, block_size=size),
            self._options,
        )
        if table.num_rows != lines:
            raise pa.ArrowInvalid(f"{table.num_rows} objects in {lines} lines")
        return table


def explain(message: str) -> str:
    """Arrow's message as the reason of a dead letter."""
    message = message.removeprefix("JSON parse error: ").removesuffix(" in row 0")
    return f"not JSON as declared: {message}"


def _readable(kind: pa.DataType) -> pa.DataType:
    """The type Arrow's JSON reader should give; texts are made into values afterwards."""
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind) or pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_readable(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _readable(each.type)) for each in kind])
    return kind
