"""The directory of the sockets between Spark's JVM and its Python workers: nobody else's.

Spark asks no secret of whoever connects to such a socket; that it cannot be reached by others is
all there is. By default it would lie in the common temporary directory.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from holdfast.errors import InputError

# The name of a socket holds 107 bytes, and Spark's part of it is ".UUID.sock" after a slash. Spark
# itself takes no directory of 61 or more.
_LONGEST = min(60, 107 - len("/.00000000-0000-0000-0000-000000000000.sock"))


def socket_directory(beside: Path | None = None) -> Path:
    """A new and private directory for sockets, below ``beside`` if their names fit there.

    What an earlier life left there is removed. Without ``beside``, and where the path would be too
    long, it is in the temporary directory.
    """
    if beside is None:
        return _temporary()
    wanted = beside.absolute() / "sockets"
    if len(os.fsencode(wanted)) <= _LONGEST:
        shutil.rmtree(wanted, ignore_errors=True)
        wanted.mkdir(mode=0o700, parents=True)
        return wanted
    # The same for every life of the process, so that those killed leave nothing behind.
    digest = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:16]
    made = _short_place() / f"holdfast-{os.geteuid()}-{digest}"
    try:
        made.mkdir(mode=0o700)
    except FileExistsError:
        found = made.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return _temporary()  # somebody else took the name
        made.chmod(0o700)
        for each in made.iterdir():
            each.unlink(missing_ok=True)
    return made


def _short_place() -> Path:
    """A temporary directory in which the names of sockets fit: TMPDIR may itself be long."""
    room = _LONGEST - len("/holdfast-4294967295-0123456789abcdef")
    for each in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        if len(os.fsencode(each)) <= room and os.access(each, os.W_OK):
            return Path(each)
    raise InputError(
        f"the sockets of Spark's workers need a directory with a name of at most {room} bytes; "
        f"TMPDIR is {tempfile.gettempdir()!r}. Set TMPDIR to a shorter one"
    )


def _temporary() -> Path:
    made = Path(tempfile.mkdtemp(prefix="holdfast-", dir=_short_place()))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
