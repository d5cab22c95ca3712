"""Sources without a network: a schema, an inlet, and the rows that come out."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.clock import Clock
from holdfast.connect.dead_letters import DeadLetters
from holdfast.connect.ingest import Inlet
from holdfast.connect.source import Chunk, Position, Reader, Source
from holdfast.frames import SEQ, STIME, TIME, TMAX
from holdfast.operators import Declaration

COLUMNS = pa.schema(
    [pa.field("at", TIME), pa.field("server", pa.string()), pa.field("cpu", pa.float64())]
)
SECOND = 1_000_000


def inlet(
    source: Source,
    directory: Path,
    *,
    stime: str | None = "at",
    columns: pa.Schema = COLUMNS,
    bucket: int = SECOND,
    saved: dict[str, Any] | None = None,
    clock: Clock | None = None,
) -> Inlet:
    """A source being read, with its dead letters in ``directory``."""
    declared = Declaration("load", stime, ("server",))
    schema = pa.schema([STIME, TMAX, SEQ, *columns])
    letters = DeadLetters(directory / "dead-letters.jsonl")
    return Inlet(declared, schema, source, bucket, letters, saved, directory / "scratch", clock)


def read_all(reader: Reader, seconds: float = 5) -> list[Chunk]:
    """Everything until the reader ends; closes it."""
    chunks = []
    deadline = time.monotonic() + seconds
    while not reader.ended:
        chunk = reader.read()
        if chunk is not None:
            chunks.append(chunk)
        else:
            time.sleep(0.001)
        assert time.monotonic() < deadline, "the source did not end"
    reader.close()
    return chunks


def read_in_two(
    source: Source, columns: pa.Schema, stop_after: int, scratch: Path | None = None
) -> tuple[list[Chunk], list[Chunk]]:
    """Read so many chunks, then go on with a new reader from the first one's position."""
    first = source.open(columns, None, scratch)
    chunks: list[Chunk] = []
    while len(chunks) < stop_after:
        chunk = first.read()
        if chunk is not None:
            chunks.append(chunk)
    position: Position = json.loads(json.dumps(first.position))
    first.close()
    second = source.open(columns, position, scratch)
    return chunks, read_all(second)


def values(chunks: list[Chunk], column: str) -> list[Any]:
    """A column of all the chunks."""
    return [
        value.decode() if isinstance(value, bytes) else value
        for chunk in chunks
        if chunk.table.num_rows
        for value in chunk.table[column].to_pylist()
    ]


def letters(directory: Path) -> list[dict[str, Any]]:
    """The dead letters written."""
    path = directory / "dead-letters.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
