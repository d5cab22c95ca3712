"""Reads a text file in blocks of whole lines, from any offset, also while it grows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from holdfast.connect.source import Chunk, Reject
from holdfast.errors import InputError

BLOCK_BYTES = 4 << 20
# A value with line breaks may make a block this many times longer before it is cut anyway.
_LONGEST = 16


class LineFile:
    """Blocks of whole lines of one file.

    ``follow`` keeps waiting at the end of the file; otherwise the end of the file ends the
    last line and the reading.
    """

    def __init__(
        self, path: Path, offset: int, block_bytes: int, follow: bool, quoted: bool = False
    ) -> None:
        self._path = path
        size = path.stat().st_size
        if size < offset:
            raise InputError(
                f"{str(path)!r} has {size} bytes, but {offset} were read before: it was "
                f"replaced or cut; restore it, or start over with a new state directory"
            )
        self._file = path.open("rb")
        self.offset = offset
        self.ended = False
        self._block_bytes = block_bytes
        self._follow = follow
        self._quoted = quoted

    def read(self) -> bytes:
        """The next lines; empty when there is no whole line now."""
        size = self._block_bytes
        while True:
            self._file.seek(self.offset)
            block = self._file.read(size)
            at_end = len(block) < size
            if at_end and not self._follow:
                self.ended = True
                self.offset += len(block)
                return block
            cut = _last_line_end(block, self._quoted and size < _LONGEST * self._block_bytes)
            if cut or at_end:
                self.offset += cut
                return block[:cut]
            size *= 2

    def close(self) -> None:
        self._file.close()


def _last_line_end(block: bytes, quoted: bool) -> int:
    """Where the last whole line ends; with ``quoted``, not inside of quotes."""
    end = block.rfind(b"\n") + 1
    if quoted and b'"' in block:
        while end and block.count(b'"', 0, end) % 2:
            end = block.rfind(b"\n", 0, end - 1) + 1
    return end


def parse_lines(
    block: bytes, parse: Callable[[bytes], Chunk], fault: Callable[[str], str]
) -> list[Chunk]:
    """Parse a block at once; where that fails, halve it until the bad lines stand alone.

    ``fault`` turns the parser's message into a reject's reason.
    """
    if not block.strip():
        return []
    try:
        return [parse(block)]
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError) as error:
        message = str(error).splitlines()[0]
    middle = block.find(b"\n", len(block) // 2) + 1
    if middle in (0, len(block)):
        middle = block.rfind(b"\n", 0, len(block) // 2) + 1
    if middle == 0:
        text = block.decode("utf-8", "replace").rstrip("\r\n")
        return [Chunk(pa.table({}), [Reject(fault(message), text)])]
    return parse_lines(block[:middle], parse, fault) + parse_lines(block[middle:], parse, fault)


def joined(chunks: list[Chunk]) -> Chunk | None:
    """One chunk out of several."""
    if not chunks:
        return None
    tables = [chunk.table for chunk in chunks if chunk.table.num_rows]
    rejects = [reject for chunk in chunks for reject in chunk.rejects]
    return Chunk(pa.concat_tables(tables) if tables else pa.table({}), rejects)
