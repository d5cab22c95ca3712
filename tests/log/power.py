"""A disk that can lose its power: it knows what would survive a cut, after every step.

Runs on the real file system and keeps a second account: of each file the bytes as of its last
sync, the writes since, and of the directory the names as of its last sync and the changes
since. A cut keeps what was synced and any part of the rest: of writes any set of sectors, of
name changes a first few (file systems keep those in order).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from holdfast.log.direct import BlockPart
from holdfast.log.files import Files

SECTOR = 512
T = TypeVar("T")


@dataclass
class Inode:
    """A file: what is durable of it, and what happened to it since."""

    synced: bytes = b""
    pending: list[tuple[str, int, bytes]] = field(default_factory=list)

    def survives(self, rng: random.Random, keep: float) -> bytes:
        data = bytearray(self.synced)
        for what, at, piece in self.pending:
            if what == "size":
                if rng.random() < keep:
                    data = data[:at].ljust(at, b"\0")
                continue
            for start in range(0, len(piece), SECTOR):
                if rng.random() < keep:
                    part = piece[start : start + SECTOR]
                    data = data.ljust(at + start, b"\0")
                    data[at + start : at + start + len(part)] = part
        return bytes(data)


@dataclass
class Disk:
    """Everything a cut could keep."""

    inodes: dict[int, Inode] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    synced_names: dict[str, int] = field(default_factory=dict)
    renames: list[dict[str, int]] = field(default_factory=list)

    def copy(self) -> Disk:
        inodes = {at: Inode(i.synced, list(i.pending)) for at, i in self.inodes.items()}
        return Disk(inodes, dict(self.names), dict(self.synced_names), list(self.renames))

    def after_a_cut(self, rng: random.Random, keep: float, target: Path) -> None:
        """Makes ``target`` a directory as it could look after a power cut now."""
        target.mkdir(exist_ok=True)
        for old in target.iterdir():
            old.unlink()
        kept = sum(rng.random() < keep for _ in self.renames)
        names = ([self.synced_names, *self.renames])[kept]
        for name, inode in names.items():
            (target / name).write_bytes(self.inodes[inode].survives(rng, keep))


class PowerFiles(Files, Generic[T]):
    """Files on a ``Disk``; ``history`` has it as it was after every step, with a note."""

    def __init__(self, note: Callable[[], T]) -> None:
        self.disk = Disk()
        self.history: list[tuple[Disk, T]] = []
        self._note = note
        self._inode_of: dict[int, int] = {}
        self._next = 0

    def _step(self) -> None:
        self.history.append((self.disk.copy(), self._note()))

    def _named(self) -> None:
        self.disk.renames.append(dict(self.disk.names))
        self._step()

    def create(self, path: Path) -> int:
        fd = super().create(path)
        self._next += 1
        self._inode_of[fd] = self._next
        self.disk.inodes[self._next] = Inode()
        self.disk.names[path.name] = self._next
        self._named()
        return fd

    def open(self, path: Path, *, writable: bool = False) -> int:
        fd = super().open(path, writable=writable)
        self._inode_of[fd] = self.disk.names[path.name]
        return fd

    def write(self, fd: int, parts: Sequence[BlockPart], offset: int) -> None:
        super().write(fd, parts, offset)
        data = b"".join(bytes(memoryview(part)) for part in parts)
        inode = self.disk.inodes[self._inode_of[fd]]
        half = len(data) // 2  # two steps, to be cut in between
        inode.pending.append(("write", offset, data[:half]))
        self._step()
        inode.pending.append(("write", offset + half, data[half:]))
        self._step()

    def truncate(self, fd: int, size: int) -> None:
        super().truncate(fd, size)
        self.disk.inodes[self._inode_of[fd]].pending.append(("size", size, b""))
        self._step()

    def allocate(self, fd: int, offset: int, size: int) -> None:
        super().allocate(fd, offset, size)
        self.disk.inodes[self._inode_of[fd]].pending.append(("size", offset + size, b""))
        self._step()

    def sync(self, fd: int) -> None:
        inode = self.disk.inodes[self._inode_of[fd]]
        inode.synced, inode.pending = super().read(fd, self.size(fd), 0).to_pybytes(), []
        self._step()

    def sync_directory(self, directory: Path) -> None:
        self.disk.synced_names, self.disk.renames = dict(self.disk.names), []
        self._step()

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self.disk.names[target.name] = self.disk.names.pop(source.name)
        self._named()

    def remove(self, path: Path) -> None:
        super().remove(path)
        if self.disk.names.pop(path.name, None) is not None:
            self._named()
