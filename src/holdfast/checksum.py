"""CRC32C, which current processors compute faster than memory delivers."""

from __future__ import annotations

import crc32c as _crc32c
import pyarrow as pa


def crc32c(data: bytes | pa.Buffer, after: int = 0) -> int:
    """The CRC32C of ``data``, continuing one of what comes before it.

    Over 32 KiB it is computed without the interpreter's lock.
    """
    return _crc32c.crc32c(data, after)


def with_checksum(magic: bytes, rest: bytes, after: int = 0) -> bytes:
    """Every header on disk: four bytes of magic, the CRC of the rest, the rest."""
    return magic + crc32c(rest, after).to_bytes(4, "little") + rest
