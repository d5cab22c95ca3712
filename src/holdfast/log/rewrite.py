"""Rewriting a sealed segment without some of its tentative blocks.

The new file is complete and durable before it takes the old one's name; a crash leaves the one
or the other. Its header differs in the generation, so an index file of the old one does not
fit it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from holdfast.log.block import GAP, Block, encoded_gap, header_at
from holdfast.log.errors import DamagedLog
from holdfast.log.files import Files
from holdfast.log.scan import scan_segment, stretches
from holdfast.log.segment import Segment, begin_segment

MayGo = Callable[[Block], bool]


def rewrite(
    files: Files, old: Segment, temporary: Path, may_go: MayGo, index_bytes: int
) -> Segment | None:
    """Writes ``old`` without the blocks that ``may_go`` to ``temporary``, durably; returns what
    the segment will be once that file has its name, or None if no block may go."""
    source = files.open(old.path)
    try:
        if not any(may_go(block) for blocks in _walk(files, source, old) for block in blocks):
            return None
        header = replace(old.header, generation=old.header.generation + 1)
        new, packed = begin_segment(old.path, header, index_bytes)
        files.remove(temporary)
        target = files.create(temporary)
        try:
            files.write(target, [packed], 0)
            _copy(files, source, target, old, new, may_go)
            files.sync(target)
            scan = scan_segment(files, target, new)
        finally:
            files.close(target)
    finally:
        files.close(source)
    if scan.problem is not None or new.tail != old.tail:
        raise DamagedLog(temporary, new.end, scan.problem or "it does not end as its source does")
    new.is_named = old.is_named
    return new


def _walk(files: Files, fd: int, segment: Segment) -> Iterator[list[Block]]:
    found: list[str] = []
    offset = segment.blocks_at
    for blocks in stretches(files, fd, offset, segment.end, segment.first_lsn, found):
        yield blocks
        offset = blocks[-1].end
    if found:
        raise DamagedLog(segment.path, offset, found[0])


def _copy(
    files: Files, source: int, target: int, old: Segment, new: Segment, may_go: MayGo
) -> None:
    end = new.blocks_at
    gap: list[Block] = []
    for blocks in _walk(files, source, old):
        kept: list[Block] = []
        for block in blocks:
            # An old gap joins the new one next to it.
            goes = block.kind == GAP or may_go(block)
            if goes and kept:
                end = _copy_bytes(files, source, target, kept, end)
                kept = []
            if not goes and gap:
                end = _write_gap(files, target, gap, end)
                gap = []
            (gap if goes else kept).append(block)
        if kept:
            end = _copy_bytes(files, source, target, kept, end)
    if gap:
        _write_gap(files, target, gap, end)


def _copy_bytes(files: Files, source: int, target: int, kept: list[Block], end: int) -> int:
    start, size = kept[0].offset, kept[-1].end - kept[0].offset
    files.write(target, [files.read(source, size, start)], end)
    return end + size


def _write_gap(files: Files, target: int, gap: list[Block], end: int) -> int:
    reach = (
        min(block.stime_min for block in gap),
        max(block.stime_max for block in gap),
        max(block.tmax for block in gap),
    )
    block = encoded_gap(gap[0], gap[-1], reach)
    header = header_at(block, gap[0].lsn, gap[0].lsn)
    files.write(target, [header, *block.parts], end)
    return end + block.length
