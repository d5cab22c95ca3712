"""From a directory to a log that can be used."""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path

import pyarrow as pa

from holdfast.log.errors import DamagedLog, LogError, SchemaMismatch
from holdfast.log.files import Files
from holdfast.log.options import LogOptions
from holdfast.log.order import Tail
from holdfast.log.payload import check_stream_schema, difference
from holdfast.log.recovery import Recovered, TailCut, examine, examine_in_use, settle
from holdfast.log.segment import Segment, SegmentHeader, create_segment
from holdfast.log.store import Store

LOCK_NAME = "lock"
_logger = logging.getLogger(__name__)


def open_store(
    files: Files,
    directory: Path,
    schema: pa.Schema | None,
    options: LogOptions,
    first_id: int,
    *,
    read_only: bool,
) -> tuple[Store, int | None, TailCut | None]:
    """What the log holds, the lock (unless read only), and the torn tail that was found."""
    if read_only:
        return _open_read_only(files, directory, schema, options)
    _make_directory(files, directory)
    lock_fd = files.lock(directory / LOCK_NAME)
    try:
        recovered = examine(files, directory, options.index_bytes)
        if recovered.damage is not None:
            raise recovered.damage
        if recovered.segments:
            _check_schema(directory, recovered.segments, schema)
        settle(files, directory, recovered)
        _report(recovered)
        if not recovered.segments:
            recovered.segments = [_create(files, directory, schema, options, first_id)]
        store = Store(files, directory, options, recovered.segments)
        return store, lock_fd, recovered.cut
    except BaseException:
        os.close(lock_fd)
        raise


def _open_read_only(
    files: Files, directory: Path, schema: pa.Schema | None, options: LogOptions
) -> tuple[Store, None, TailCut | None]:
    if not directory.is_dir():
        raise LogError(f"{directory}: there is no log here")
    recovered = examine_in_use(files, directory, options.index_bytes)
    if not recovered.segments:
        raise recovered.damage or LogError(f"{directory}: there is no log here")
    _check_schema(directory, recovered.segments, schema)
    store = Store(files, directory, options, recovered.segments)
    store.damage = recovered.damage
    return store, None, recovered.cut


def _make_directory(files: Files, directory: Path) -> None:
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):  # mkdir's own parents would be open to everybody
        path.mkdir(mode=0o700, exist_ok=True)
    for path in missing:
        files.sync_directory(path.parent)


def _create(
    files: Files, directory: Path, schema: pa.Schema | None, options: LogOptions, first_id: int
) -> Segment:
    """The first segment of a new log; durable before anything is appended to it."""
    if schema is None:
        raise LogError(f"{directory}: there is no log here; a new one needs a schema")
    check_stream_schema(schema)
    start = Tail(next_id=first_id, stable_next_id=first_id)
    header = SegmentHeader(secrets.token_bytes(16), start, 0, schema)
    segment, fd = create_segment(files, directory, header, options.index_bytes)
    try:
        files.sync(fd)
    finally:
        files.close(fd)
    files.sync_directory(directory)
    files.write_whole(segment.index_path, segment.packed_index())
    segment.is_named = True
    return segment


def _check_schema(directory: Path, segments: list[Segment], schema: pa.Schema | None) -> None:
    stored = segments[-1].header.schema
    if schema is not None and not stored.equals(schema):
        raise SchemaMismatch(
            f"{directory}: the log has another schema; {difference(schema, stored)}. A stream "
            f"keeps its schema for ever: give the changed one another directory"
        )
    for segment in segments:
        if not segment.header.schema.equals(stored):
            raise DamagedLog(segment.path, 0, "its schema is not that of the last segment")


def _report(recovered: Recovered) -> None:
    cut = recovered.cut
    if cut is not None:
        _logger.warning(
            "%s: cut %d bytes of a torn tail at byte %d (%s); none of it was acknowledged",
            cut.path,
            cut.dropped_bytes,
            cut.offset,
            cut.problem,
        )
