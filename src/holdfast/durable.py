"""Files that are either there as a whole or not at all, also after a power cut; and private.

What a process goes on from after a restart carries a CRC32C: documents (JSON with a field for it),
tables (Arrow, with it at the end) and lines (with it in front). Disks and copies flip bits now and
then; whoever reads finds out, and refuses.

What Holdfast keeps are its user's tuples and secrets: directories are 0700, files 0600, whatever
the umask says.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from holdfast import disk
from holdfast.checksum import crc32c
from holdfast.disk import sync_directory
from holdfast.errors import StateError

_TABLE_END = b"HFT1"


def make_private(directory: Path) -> None:
    """Make a directory that only this user may enter, with those above it that are missing.

    One that is there already and lets others in, from an earlier version say, is closed to them.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    found = directory.stat()
    if found.st_mode & 0o077 and found.st_uid == os.geteuid():
        directory.chmod(0o700)


def write_whole(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``: hidden file, sync, rename, sync of the directory."""
    hidden = path.with_name(f".{path.name}.part")
    with disk.open_file(hidden, "wb") as file:
        file.write(data)
        disk.sync(file)
    disk.rename(hidden, path)
    sync_directory(path.parent)


class LockHeld(StateError):
    """Another process has a lock file."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"process {holder or 'unknown'} has it")
        self.holder = holder or "unknown"


def take_lock(path: Path) -> int:
    """Take a lock file, which the operating system frees when the process ends, and write into it
    who has it; its descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise LockHeld(holder) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


class Damaged(StateError):
    """A file is not as it was written."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path} is damaged: {what}. Put back an intact copy of it")


def write_document(path: Path, content: dict[str, Any]) -> None:
    """Replace a JSON file, with a checksum in it."""
    text = json.dumps({**content, "crc32c": _checksum(content)}, indent=1)
    write_whole(path, text.encode())


def read_document(path: Path) -> dict[str, Any]:
    """What ``write_document`` wrote; raises Damaged if it is not that any more."""
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        said = content.pop("crc32c", None)
    except (ValueError, AttributeError, TypeError) as error:
        raise Damaged(path, f"it is no JSON object ({error})") from None
    if said is None:
        raise Damaged(path, "it has no checksum (version 0.1.0 wrote none)")
    if said != _checksum(content):
        raise Damaged(path, "its checksum is another")
    return content


def check_format(path: Path, content: dict[str, Any], format: int, otherwise: str) -> None:
    """StateError unless a document is of the format that this version reads.

    ``otherwise`` says what is to be done instead.
    """
    if content.get("format") != format:
        raise StateError(
            f"{path} has format {content.get('format')}, this version of Holdfast reads {format}; "
            f"{otherwise}"
        )


def _checksum(content: dict[str, Any]) -> int:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return crc32c(text.encode())


def seal_line(text: str) -> bytes:
    """A line for a file of lines, with its checksum in front."""
    data = text.encode()
    return b"%08x %s\n" % (crc32c(data), data)


def open_line(line: bytes) -> str | None:
    """What ``seal_line`` sealed, given without the end of line; None if it is damaged."""
    checksum, _, data = line.partition(b" ")
    return data.decode() if checksum == b"%08x" % crc32c(data) else None


def write_table(path: Path, table: pa.Table) -> None:
    """Write and sync an Arrow file with a checksum; its directory is not synced."""
    with disk.open_file(path, "wb") as file:
        checked = _Checked(file)
        with pa.ipc.new_file(pa.PythonFile(checked, "w"), table.schema) as writer:
            writer.write_table(table)
        file.write(checked.crc.to_bytes(4, "little") + _TABLE_END)
        disk.sync(file)


def read_table(path: Path) -> pa.Table:
    """Read what ``write_table`` wrote into memory; raises Damaged if it is not that any more."""
    with pa.OSFile(str(path), "rb") as source:
        whole = source.read_buffer()
    size = whole.size - 4 - len(_TABLE_END)
    end = whole.slice(max(0, size)).to_pybytes()
    if size < 0 or end[4:] != _TABLE_END:
        raise Damaged(path, "its end is missing")
    data = whole.slice(0, size)
    if crc32c(data) != int.from_bytes(end[:4], "little"):
        raise Damaged(path, "its checksum is another")
    return pa.ipc.open_file(data).read_all()


class _Checked:
    """A file that takes the checksum of what is written to it, which comes in order."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.crc = 0

    def write(self, data: Any) -> int:
        self.crc = crc32c(data, self.crc)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """The file stays open for the checksum."""
