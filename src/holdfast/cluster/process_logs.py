"""Process logs have a bound: one that has grown too long is put aside, once.

A process, its JVM and their workers all write to the same open file, each at its end. So the file
itself stays: what it holds is copied to ``NAME.log.1``, in place of what was there, and then it is
emptied.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from holdfast import disk

LONGEST_BYTES = 32 << 20


def rotate(path: Path, longest_bytes: int = LONGEST_BYTES) -> bool:
    """Put a log aside if it is too long; whether it was. Raises OSError if there is no room.

    It is emptied only if nothing was written since it was copied, or nearly nothing.
    """
    try:
        if path.stat().st_size <= longest_bytes:
            return False
    except FileNotFoundError:
        return False
    aside = path.with_name(f"{path.name}.1")
    hidden = path.with_name(f".{path.name}.part")
    with path.open("rb") as log, disk.open_file(hidden, "wb") as copy:
        # What is written meanwhile is copied, too, until there is nothing more.
        while True:
            shutil.copyfileobj(log, copy)
            copy.flush()
            if os.fstat(log.fileno()).st_size == log.tell():
                break
        disk.rename(hidden, aside)
        os.truncate(path, 0)
    return True
