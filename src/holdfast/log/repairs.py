"""Cutting a damaged log, when nothing better can be done.

Steps: (1) find the first damage; (2) copy the file it is in, whole, and move later segments,
all under names ending in ``.damaged``; (3) cut the file where the damage starts and drop its
index file. Each step is durable before the next, and doing it again after a crash is safe.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.log.errors import DamagedLog
from holdfast.log.files import Files
from holdfast.log.inspection import inspect
from holdfast.log.opening import LOCK_NAME
from holdfast.log.recovery import segment_paths
from holdfast.log.scan import CHUNK_BYTES
from holdfast.log.segment import INDEX_SUFFIX

DAMAGED_SUFFIX = ".damaged"


@dataclass(frozen=True, slots=True)
class Repair:
    """A cut: the log now ends at ``offset`` of ``path``; what followed is in ``set_aside``."""

    path: Path
    offset: int
    problem: str
    set_aside: list[Path]


def repair(directory: str | os.PathLike[str], *, files: Files | None = None) -> Repair | None:
    """Cuts the log in ``directory`` at its first damage; None if it has none.

    Frames after the damage leave the log, acknowledged ones too. A replica makes them again, with
    the same ids, if its kept state is not newer than them, and otherwise refuses to start; the
    log of an entry point must not be cut unless its tuples can be sent again.
    """
    path, files = Path(directory), files or Files()
    lock_fd = files.lock(path / LOCK_NAME)
    try:
        damage = min(
            inspect(path, files=files).damage, key=lambda d: (d.path.name, d.offset), default=None
        )
        if damage is None:
            return None
        return _cut(files, path, damage)
    finally:
        os.close(lock_fd)


def _cut(files: Files, directory: Path, damage: DamagedLog) -> Repair:
    later = [p for p in segment_paths(files, directory) if p.name > damage.path.name]
    aside = [_aside(path) for path in (damage.path, *later)]
    for path in reversed(later):  # last first: an interruption leaves no hole
        files.remove(path.with_suffix(INDEX_SUFFIX))
        files.replace(path, _aside(path))
        files.sync_directory(directory)
    if damage.offset == 0:
        files.remove(damage.path.with_suffix(INDEX_SUFFIX))
        files.replace(damage.path, aside[0])
    else:
        _copy(files, damage.path, aside[0])
        files.sync_directory(directory)
        files.remove(damage.path.with_suffix(INDEX_SUFFIX))
        files.sync_directory(directory)
        fd = files.open(damage.path, writable=True)
        try:
            files.truncate(fd, damage.offset)
            files.sync(fd)
        finally:
            files.close(fd)
    files.sync_directory(directory)
    return Repair(damage.path, damage.offset, damage.problem, aside)


def _aside(path: Path) -> Path:
    return path.with_name(path.name + DAMAGED_SUFFIX)


def _copy(files: Files, source: Path, target: Path) -> None:
    files.remove(target)
    source_fd, target_fd = files.open(source), files.create(target)
    try:
        offset = 0
        while piece := files.read(source_fd, CHUNK_BYTES, offset).to_pybytes():
            files.write(target_fd, [piece], offset)
            offset += len(piece)
        files.sync(target_fd)
    finally:
        files.close(source_fd)
        files.close(target_fd)
