"""The state directory of a run: what it needs to go on where it stopped.

    lock                  held while a run uses the directory
    manifest.json         the last checkpoint: names everything that belongs to it
    checkpoints/000012/   Arrow files: the engine's state, tuples that wait for their bucket
    sources/NAME/         what a source must keep itself, e.g. the journal of a socket
    engine/               the running engine's own files; worthless once it has stopped
    dead-letters.jsonl    rows that could not become tuples
    writer.json           what sinks know this run and those that go on from it by

A checkpoint is complete when the manifest names it, in these steps:

1. Write the changed state and the waiting tuples into ``checkpoints/N.part`` and sync them.
2. Rename it to ``checkpoints/N`` and sync the directory.
3. Make the outputs and the dead letters durable and note their positions.
4. Write the manifest beside the old one, sync it, rename it over the old one.
5. Remove the checkpoints that the new manifest no longer names.

A crash before step 4 leaves the old checkpoint in force, one after it the new; whatever else
lies around is removed when the directory is opened.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast import disk
from holdfast.core.laying import Links
from holdfast.disk import sync_directory
from holdfast.durable import (
    Damaged,
    LockHeld,
    check_format,
    make_private,
    read_document,
    read_table,
    take_lock,
    write_document,
    write_table,
)
from holdfast.errors import StateError
from holdfast.packed import Chain, PackedPart, PackedState

_FORMAT = 3

Manifest = dict[str, Any]


class StateDirectory:
    """An open state directory; only one run at a time may hold it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise StateError(f"{str(path)!r} is a file; a state directory is needed")
        self._refuse_foreign()
        self._checkpoints = self.path / "checkpoints"
        make_private(self.path)
        make_private(self._checkpoints)
        # Who had the lock may have written until a moment ago: only now is it known what there is.
        self._lock = self._take_lock()
        try:
            self.manifest = self._read_manifest()
        except BaseException:
            os.close(self._lock)
            raise
        shutil.rmtree(self.engine, ignore_errors=True)
        self._links: Links[Manifest] = Links(self.manifest["chain"] if self.manifest else ())
        self._number = max([link["number"] for link in self._links.counted], default=0)
        self._remove_unnamed()

    @property
    def engine(self) -> Path:
        return (self.path / "engine").absolute()  # the JVM may have another working directory

    @property
    def dead_letters(self) -> Path:
        return self.path / "dead-letters.jsonl"

    @property
    def writer_id(self) -> str:
        """Who writes to the sinks: the same for every run that goes on here."""
        path = self.path / "writer.json"
        if not path.exists():
            write_document(path, {"writer": uuid.uuid4().hex})
        return str(read_document(path)["writer"])

    def source(self, name: str) -> Path:
        """The directory a source may keep files in."""
        return self.path / "sources" / name

    def sink(self, name: str) -> Path:
        """The file in which the sink of an output may note what it begins."""
        return self.path / "sinks" / f"{name}.json"

    def wants_whole(self) -> bool:
        """Whether the next checkpoint should have the whole state rather than the changes."""
        if self._links.is_long:
            return True
        links = self._links.counted
        changes: int = sum(link["bytes"] for link in links[1:])
        whole: int = links[0]["bytes"]
        return changes > whole

    def write_state(self, chain: Chain, waiting: Mapping[str, pa.Table]) -> None:
        """Steps 1 and 2; the tuples that wait go with the last of the chain."""
        self._links.call_off()
        last = len(chain) - 1
        links = [
            self._write_link(packed, waiting if at == last else {})
            for at, packed in enumerate(chain)
        ]
        self._links.write(links, chain[0].since is None)

    def _write_link(self, packed: PackedState, waiting: Mapping[str, pa.Table]) -> Manifest:
        self._number += 1
        hidden = self._checkpoints / f"{self._number:06}.part"
        shutil.rmtree(hidden, ignore_errors=True)
        make_private(hidden)
        parts = []
        for index, part in enumerate(packed.parts):
            write_table(hidden / f"{index}.arrow", part.rows)
            parts.append([part.operator, part.family, part.partition, f"{index}.arrow"])
        for name, table in waiting.items():
            write_table(hidden / f"waiting-{name}.arrow", table)
        sync_directory(hidden)
        disk.rename(hidden, self._checkpoints / f"{self._number:06}")
        sync_directory(self._checkpoints)
        return {
            "number": self._number,
            "version": packed.version,
            "boundary": packed.boundary,
            "since": packed.since,
            "bytes": packed.nbytes,
            "parts": parts,
        }

    def forget(self) -> None:
        """With the next manifest, there is no state."""
        self._links.write((), whole=True)

    def write_manifest(self, manifest: Manifest) -> None:
        """Steps 4 and 5."""
        document = {"format": _FORMAT, **manifest, "chain": list(self._links.newest)}
        write_document(self.path / "manifest.json", document)
        self._links.count()
        self.manifest = document
        self._remove_unnamed()

    def note(self, changes: Manifest) -> None:
        """Change what the manifest says beside the last checkpoint, which stays what it is."""
        assert self.manifest is not None, "there is a checkpoint"
        self._links.call_off()
        self.write_manifest({**self.manifest, **changes})

    def finish(self, tuples: Mapping[str, int]) -> None:
        """Note that the input came to its end after the checkpoint, with so many results."""
        self.note({"finished": dict(tuples)})

    def read_state(self) -> list[PackedState]:
        """The packed states of the last checkpoint, to be unpacked one after the other."""
        states = []
        for link in self._links.counted:
            directory = self._checkpoints / f"{link['number']:06}"
            parts = [
                PackedPart(operator, family, partition, _intact(directory / file))
                for operator, family, partition, file in link["parts"]
            ]
            states.append(PackedState(link["version"], link["boundary"], link["since"], parts))
        return states

    def read_waiting(self, name: str) -> pa.Table | None:
        """The tuples of a source that waited for their bucket."""
        links = self._links.counted
        if not links:
            return None
        path = self._checkpoints / f"{links[-1]['number']:06}" / f"waiting-{name}.arrow"
        return _intact(path) if path.exists() else None

    def close(self) -> None:
        shutil.rmtree(self.engine, ignore_errors=True)
        os.close(self._lock)

    def _refuse_foreign(self) -> None:
        """A directory with other things in it is a typing mistake, not a state directory."""
        if not self.path.is_dir():
            return
        names = {each.name for each in self.path.iterdir()}
        if names and "manifest.json" not in names and "checkpoints" not in names:
            raise StateError(
                f"{str(self.path)!r} has other files in it and is no state directory; name an "
                f"empty or a new one"
            )

    def _take_lock(self) -> int:
        try:
            return take_lock(self.path / "lock")
        except LockHeld as error:
            raise StateError(
                f"the state directory {str(self.path)!r} is in use by process {error.holder}; stop "
                f"that run first, or name another directory"
            ) from None

    def _read_manifest(self) -> Manifest | None:
        path = self.path / "manifest.json"
        if not path.exists():
            return None
        try:
            manifest: Manifest = read_document(path)
        except Damaged as error:
            raise StateError(f"{error}; or start over with a new state directory") from None
        check_format(path, manifest, _FORMAT, "start over with a new state directory")
        return manifest

    def _remove_unnamed(self) -> None:
        named = {f"{link['number']:06}" for link in self._links.counted}
        for each in self._checkpoints.iterdir():
            if each.name not in named:
                with contextlib.suppress(OSError):
                    shutil.rmtree(each)


def _intact(path: Path) -> pa.Table:
    """A table of a checkpoint, or StateError."""
    try:
        return read_table(path)
    except (OSError, pa.ArrowInvalid, Damaged) as error:
        raise StateError(f"{error}; or start over with a new state directory") from None


def put_aside(path: Path) -> Path:
    """Put a kept state where nobody looks for it; where that is."""
    last = max(_put_aside(path), default=0)
    aside = _aside(path, last + 1)
    if path.exists():
        disk.rename(path, aside)
        sync_directory(path.parent)
    return aside


def keep_newest_aside(path: Path) -> None:
    """Of the states that were put aside, those that others have followed go."""
    for number in sorted(_put_aside(path))[:-1]:
        shutil.rmtree(_aside(path, number), ignore_errors=True)


def _put_aside(path: Path) -> list[int]:
    """The numbers of the states that were put aside."""
    found = (each.name.rpartition("-")[2] for each in path.parent.glob(f"{path.name}.aside-*"))
    return [int(number) for number in found if number.isdigit()]


def _aside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.aside-{number}")
