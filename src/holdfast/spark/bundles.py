"""Small runs of a task share a file.

To make a file takes longer than to compute what a small run has in it: some 120 µs on ext4, where
files come and go all the time. So what the steps of a task write for a bucket is one file, a
*bundle*, whatever the queries and partitions. It begins with what the names of runs in files of
their own would tell, and is gone with its last run. Larger runs have files of their own: a run that
stays would keep the room of all the others.

An *address* says where a run is: a file, or a place in a bundle.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from holdfast import disk
from holdfast.spark.attempts import part_of
from holdfast.spark.open_runs import OpenRun, keep_open
from holdfast.spark.runs import place_in_file, write_bytes

# How the names of such files begin; no operator is called so.
BUNDLE = ".bundle"
# Runs up to this size share files; larger ones if little is in the file, and not by far.
_MOST_BYTES, _LARGER_BYTES, _LITTLE_BYTES = 128 << 10, 512 << 10, 1 << 20
# As Arrow likes what it looks at to lie.
_ALIGNED = 64
_SIZE = struct.Struct("<Q")


class Bundle:
    """What the steps of one task have for a file of their common step."""

    def __init__(self, directory: str, number: int) -> None:
        self._directory, self._number = directory, number
        self._members: list[tuple[str, OpenRun, Sequence[str]]] = []
        self._pieces: list[bytes] = []
        self._bytes = 0

    def take(self, name: str, run: OpenRun, swallowed: Sequence[str]) -> bool:
        """Take a run, by the name that a file of its own would have, unless it is too large.

        ``swallowed``: the addresses of those that it replaces.
        """
        most = max(_MOST_BYTES, min(_LARGER_BYTES, _LITTLE_BYTES - self._bytes))
        if run.column_bytes > most:
            return False  # it would be written for nothing, and then once more
        piece = run.stream_bytes()
        if len(piece) > most:
            return False
        self._bytes += len(piece)
        self._members.append((name, run, swallowed))
        self._pieces.append(piece)
        return True

    def write(self) -> None:
        """Write the file, if there is anything to write, and keep the runs open."""
        if not self._members:
            return
        pieces = self._pieces
        names = (name for name, *_ in self._members)
        head = json.dumps([*zip(names, map(len, pieces), strict=True)]).encode()
        first = _aligned(_SIZE.size + len(head))
        parts = [(_SIZE.pack(len(head)) + head).ljust(first, b"\0")]
        parts += [each.ljust(_aligned(len(each)), b"\0") for each in pieces]
        # No other task of the step has this partition of this operator.
        operator, _, partition, *_ = self._members[0][0].split("~")
        path = f"{self._directory}/{BUNDLE}~{operator}~{partition}~{self._number}"
        part = part_of(path)
        write_bytes(part, b"".join(parts))
        disk.rename(part, path)
        places = _places(first, map(len, pieces))
        for (_, run, swallowed), (place, size) in zip(self._members, places, strict=True):
            keep_open(f"{path}{place}", run, size, swallowed)


def members(path: str) -> list[tuple[str, str, int]]:
    """The name, address and bytes of every run in a bundle."""
    with Path(path).open("rb") as file:
        (size,) = _SIZE.unpack(file.read(_SIZE.size))
        named = json.loads(file.read(size))
    places = _places(_aligned(_SIZE.size + size), (length for _, length in named))
    return [
        (name, f"{path}{place}", length)
        for (name, _), (place, length) in zip(named, places, strict=True)
    ]


def _places(first: int, lengths: Iterable[int]) -> Iterator[tuple[str, int]]:
    """How addresses of runs of these lengths end, with the lengths."""
    for length in lengths:
        yield place_in_file(first, length), length
        first += _aligned(length)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
