"""From a directory to a log that can be used."""

from __future__ import annotations

import logging
import os
import secrets
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from holdfast.gained import gained_columns
from holdfast.log.block import split
from holdfast.log.errors import DamagedLog, LogError, SchemaMismatch
from holdfast.log.files import Files
from holdfast.log.options import LogOptions
from holdfast.log.order import Tail
from holdfast.log.payload import check_stream_schema, difference
from holdfast.log.recovery import (
    Examined,
    TailCut,
    examine,
    examine_in_use,
    segment_paths,
    settle,
)
from holdfast.log.segment import (
    Segment,
    SegmentHeader,
    begin_segment,
    create_segment,
    segment_path,
)
from holdfast.log.store import Store

LOCK_NAME = "lock"
_logger = logging.getLogger(__name__)


def open_store(
    files: Files,
    directory: Path,
    schema: pa.Schema | None,
    options: LogOptions,
    *,
    read_only: bool,
) -> tuple[Store, int | None, TailCut | None]:
    """What the log holds, the lock (unless read only), and the torn tail that was found."""
    if read_only:
        return _open_read_only(files, directory, schema, options)
    _make_directory(files, directory)
    lock_fd = files.lock(directory / LOCK_NAME)
    try:
        store, cut = recover_store(files, directory, schema, options)
    except BaseException:
        os.close(lock_fd)
        raise
    return store, lock_fd, cut


def recover_store(
    files: Files, directory: Path, schema: pa.Schema | None, options: LogOptions
) -> tuple[Store, TailCut | None]:
    """What the log holds, and the torn tail that was cut off; for whoever has the lock."""
    recovered = examine(files, directory, options.index_bytes)
    if recovered.damage is not None:
        raise recovered.damage
    if recovered.segments:
        _check_schema(directory, recovered.segments, schema)
    settle(files, directory, recovered)
    _report(recovered)
    if not recovered.segments:
        recovered.segments = [_create(files, directory, schema, options)]
    elif schema is not None and not recovered.segments[-1].header.schema.equals(schema):
        _gain(files, directory, recovered.segments, schema, options)
    return Store(files, directory, options, recovered.segments), recovered.cut


def cut_to_durable(store: Store) -> None:
    """Takes back everything that may not be durable; may be called again if it fails.

    After a sync that failed, nobody knows what of the rest is on the disk, and a later sync that
    works does not tell: the system may have forgotten that it had not written it.
    """
    files, durable_lsn = store.files, store.synced_lsn
    with store.lock:
        segments = list(store.segments)
    last = max((at for at, one in enumerate(segments) if one.first_lsn < durable_lsn), default=0)
    # Last first: should this be interrupted, what remains is a shorter tail, never a hole.
    for path in reversed(segment_paths(files, store.directory)):
        if path.name > segments[last].path.name:
            files.remove(path)
            files.sync_directory(store.directory)
    fd = files.open(segments[last].path, writable=True)
    try:
        files.truncate(fd, _end_of(files, fd, segments[last], durable_lsn))
        files.sync(fd)
    finally:
        files.close(fd)


def _end_of(files: Files, fd: int, segment: Segment, lsn: int) -> int:
    """Where the blocks of a segment below ``lsn`` end."""
    if lsn >= segment.end_lsn:
        return segment.end
    if lsn <= segment.first_lsn:
        return segment.blocks_at
    at_lsn, offset = segment.index.at_lsn(lsn) or (segment.first_lsn, segment.blocks_at)
    if at_lsn == lsn:
        return offset
    buffer = files.read(fd, segment.end - offset, offset)
    blocks, _, problem = split(buffer, offset, at_lsn, lsn)
    if not blocks or blocks[-1].next_lsn != lsn:
        raise DamagedLog(segment.path, offset, problem or f"there is no block before lsn {lsn}")
    return blocks[-1].end


def _open_read_only(
    files: Files, directory: Path, schema: pa.Schema | None, options: LogOptions
) -> tuple[Store, None, TailCut | None]:
    if not directory.is_dir():
        raise LogError(f"{directory}: there is no log here")
    recovered = examine_in_use(files, directory, options.index_bytes)
    if not recovered.segments:
        raise recovered.damage or LogError(f"{directory}: there is no log here")
    _check_schema(directory, recovered.segments, schema)
    if schema is not None and not recovered.segments[-1].header.schema.equals(schema):
        raise SchemaMismatch(f"{directory}: the log gains columns when it is opened to be written")
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
    files: Files, directory: Path, schema: pa.Schema | None, options: LogOptions
) -> Segment:
    """The first segment of a new log; durable before anything is appended to it."""
    if schema is None:
        raise LogError(f"{directory}: there is no log here; a new one needs a schema")
    check_stream_schema(schema)
    header = SegmentHeader(secrets.token_bytes(16), Tail(), 0, schema)
    segment, fd = create_segment(files, directory, header, options.index_bytes)
    try:
        files.sync(fd)
    finally:
        files.close(fd)
    files.sync_directory(directory)
    files.write_whole(segment.index_path, segment.packed_index())
    segment.is_named = True
    return segment


def _gain(
    files: Files,
    directory: Path,
    segments: list[Segment],
    schema: pa.Schema,
    options: LogOptions,
) -> None:
    """The stream has gained columns: a segment begins with them, durably.

    In one step, and in the place of a last segment that has no block: after a crash there is the
    log as it was, or with the new segment.
    """
    last = segments[-1]
    header = replace(last.header, start=last.tail, synced_lsn=last.tail.lsn, schema=schema)
    path = segment_path(directory, last.end_lsn)
    segment, packed = begin_segment(path, header, options.index_bytes)
    temporary = path.with_name(path.name + ".tmp")
    files.remove(temporary)
    fd = files.create(temporary)
    try:
        files.write(fd, [packed], 0)
        files.sync(fd)
    finally:
        files.close(fd)
    files.replace(temporary, path)
    files.sync_directory(directory)
    files.write_whole(segment.index_path, segment.packed_index())
    segment.is_named = True
    segments[-1:] = [segment] if last.is_empty else [last, segment]


def _check_schema(directory: Path, segments: list[Segment], schema: pa.Schema | None) -> None:
    stored = segments[-1].header.schema
    if schema is not None and gained_columns(stored, schema) is None:
        raise SchemaMismatch(
            f"{directory}: the log has another schema; {difference(schema, stored)}. A stream "
            f"keeps its columns for ever, and may only gain some that can be null: give the "
            f"changed one another directory"
        )
    for segment, following in pairwise(segments):
        if gained_columns(segment.header.schema, following.header.schema) is None:
            raise DamagedLog(segment.path, 0, "its schema is not that of the segment after it")


def _report(recovered: Examined) -> None:
    cut = recovered.cut
    if cut is not None:
        _logger.warning(
            "%s: cut %d bytes of a torn tail at byte %d (%s); none of it was acknowledged",
            cut.path,
            cut.dropped_bytes,
            cut.offset,
            cut.problem,
        )
