"""Opening a log: which of its bytes to believe.

A log is written at its end only, so after a crash the end is where it may be torn. What was
durable is never torn; so everything turns on knowing how far the log was durable, from

1. segment headers and blocks, which say what was durable when they were made;
2. index files, which are written only about durable blocks.

The segments are walked in order; each index file saves walking the blocks it covers. The first
block that is not intact, or missing, decides:

- if anything intact, there or later, says that this block was durable, it is damage: DamagedLog
  names the file and the offset, and nothing is changed;
- otherwise nobody was told that it is durable: the log is cut there, and what follows goes too.

What remains is forced to the disk before the log is used, because ids that follow from it will
be given out. One case cannot be told apart: damage to blocks of the very last commit, if the
log was not closed, looks like a torn tail.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.log.errors import DamagedLog
from holdfast.log.files import Files
from holdfast.log.index import PackedIndex, SegmentIndex
from holdfast.log.scan import durable_after, scan_segment
from holdfast.log.segment import INDEX_SUFFIX, SEGMENT_SUFFIX, Segment, read_segment_header

_TRIES = 5


@dataclass(frozen=True, slots=True)
class TailCut:
    """A torn tail that was cut off when the log was opened."""

    path: Path
    offset: int
    dropped_bytes: int
    problem: str


@dataclass(slots=True)
class Examined:
    """The segments that can be believed, and what is wrong after them.

    durable_lsn  everything below it was durable before the log was opened.
    unwanted     segment files after a cut.
    """

    segments: list[Segment] = field(default_factory=list)
    durable_lsn: int = 0
    cut: TailCut | None = None
    damage: DamagedLog | None = None
    unwanted: list[Path] = field(default_factory=list)


def segment_paths(files: Files, directory: Path) -> list[Path]:
    return [directory / name for name in files.names(directory) if name.endswith(SEGMENT_SUFFIX)]


def examine(files: Files, directory: Path, index_bytes: int) -> Examined:
    """Finds out what to believe, without changing anything."""
    paths = segment_paths(files, directory)
    recovered = Examined()
    indexes = _read_indexes(files, directory, index_bytes)
    recovered.durable_lsn = max((packed.tail.lsn for packed in indexes.values()), default=0)
    begun, headless = _begin_all(files, paths, index_bytes, indexes, recovered)
    for at, segment in enumerate(begun):
        recovered.segments.append(segment)
        following = begun[at + 1] if at + 1 < len(begun) else None
        if following is not None and segment.end_lsn == following.first_lsn:
            continue
        durable_lsn = recovered.durable_lsn if headless is None else 0
        problem, file_bytes = _walk(files, segment, following, durable_lsn)
        if problem is not None:
            _search_durable(files, paths[at:], segment.end, recovered)
            lost = TailCut(segment.path, segment.end, max(0, file_bytes - segment.end), problem)
            _decide(recovered, lost, recovered.durable_lsn > segment.end_lsn)
            recovered.unwanted = paths[at + 1 :]
            return recovered
    if headless is not None:
        rest = paths[len(begun) :]
        _search_durable(files, rest, 0, recovered)
        lsn = begun[-1].end_lsn if begun else 0
        # A first segment is durable, and has an index file, before anything else happens.
        created = not begun and rest[0].stem in indexes
        lost = TailCut(headless.path, 0, rest[0].stat().st_size, headless.problem)
        _decide(recovered, lost, recovered.durable_lsn > lsn or created)
        recovered.unwanted = rest
    return recovered


def examine_in_use(files: Files, directory: Path, index_bytes: int) -> Examined:
    """Like ``examine``, of a log whose writer may trim it or append to it at the same time.

    Blocks that are written behind the place where the walk has stopped look like damage, but
    only once: by the next look the place is intact. What looks damaged at another place each time
    is a log that is written faster than it is looked at: it is read as far as that place.
    """
    at: tuple[Path, int] | None = None
    found: Examined | None = None
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            found = examine(files, directory, index_bytes)
            if found.damage is None or at == (found.damage.path, found.damage.offset):
                return found
            at = found.damage.path, found.damage.offset
    if found is None:
        return examine(files, directory, index_bytes)
    found.damage = None
    return found


def _begin_all(
    files: Files,
    paths: list[Path],
    index_bytes: int,
    indexes: dict[str, PackedIndex],
    recovered: Examined,
) -> tuple[list[Segment], DamagedLog | None]:
    """The segments up to the first whose header is not intact, each up to where its index file
    vouches for it; and what all headers and index files say was durable."""
    begun: list[Segment] = []
    headless: DamagedLog | None = None
    for path in paths:
        packed = indexes.get(path.stem)
        fd = files.open(path)
        try:
            log_id = begun[0].header.log_id if begun else None
            segment = read_segment_header(files, fd, path, index_bytes, log_id)
        except DamagedLog as error:
            headless = headless or error
        else:
            recovered.durable_lsn = max(recovered.durable_lsn, segment.header.synced_lsn)
            # An index file that promises more than the file has is kept as evidence only.
            fits = packed is not None and packed.end <= files.size(fd)
            if packed and fits and packed.segment_crc == segment.header_crc:
                segment.index, segment.end, segment.tail = packed.index, packed.end, packed.tail
                segment.indexed_to = packed.end
            if headless is None:
                begun.append(segment)
        finally:
            files.close(fd)
    return begun, headless


def _read_indexes(files: Files, directory: Path, index_bytes: int) -> dict[str, PackedIndex]:
    """The intact index files, also of segments that are gone."""
    indexes: dict[str, PackedIndex] = {}
    for name in files.names(directory):
        if name.endswith(INDEX_SUFFIX):
            packed = SegmentIndex.unpack(files.read_whole(directory / name), index_bytes)
            if packed is not None:
                indexes[Path(name).stem] = packed
    return indexes


def _walk(
    files: Files, segment: Segment, following: Segment | None, durable_lsn: int
) -> tuple[str | None, int]:
    """Walks the blocks no index file vouches for: what is wrong after them, and the file's size."""
    fd = files.open(segment.path)
    try:
        scan = scan_segment(files, fd, segment)
    finally:
        files.close(fd)
    problem, expected = scan.problem, durable_lsn
    if following is not None:
        expected = following.first_lsn
    if problem is None and segment.end_lsn < expected:
        problem = f"the blocks from lsn {segment.end_lsn} up to {expected} are missing"
    if problem is None and following is not None and segment.end_lsn > expected:
        problem = f"the blocks go on to lsn {segment.end_lsn}, and {following.path.name} follows"
    return problem, scan.file_bytes


def _search_durable(files: Files, paths: list[Path], offset: int, recovered: Examined) -> None:
    """Takes in what the blocks say that follow a bad one, in its file and in later ones."""
    for path in paths:
        recovered.durable_lsn = max(recovered.durable_lsn, durable_after(files, path, offset))
        offset = 0


def _decide(recovered: Examined, lost: TailCut, was_durable: bool) -> None:
    if was_durable:
        recovered.damage = DamagedLog(lost.path, lost.offset, lost.problem)
    else:
        recovered.cut = lost


def settle(files: Files, directory: Path, recovered: Examined) -> None:
    """Makes the directory hold what was recovered and nothing else, durably."""
    known = {segment.index_path.name for segment in recovered.segments}
    for name in files.names(directory):
        if name.endswith(".tmp") or (name.endswith(INDEX_SUFFIX) and name not in known):
            files.remove(directory / name)
    # Last first: should this be interrupted, what remains is a shorter tail, never a hole.
    for path in reversed(recovered.unwanted):
        files.remove(path)
        files.sync_directory(directory)
    for segment in recovered.segments:
        segment.is_named = True
        if segment is not recovered.segments[-1] and segment.end_lsn <= recovered.durable_lsn:
            continue
        fd = files.open(segment.path, writable=True)
        try:
            files.truncate(fd, segment.end)
            files.sync(fd)
        finally:
            files.close(fd)
    files.sync_directory(directory)
