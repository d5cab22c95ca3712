"""Where steps leave what they make: directories that are used again once nothing is in them.

To remove a directory takes more than a millisecond on some file systems, as long as all else that
the driver does for a small bucket.
"""

from __future__ import annotations

import shutil
import weakref
from collections import deque
from pathlib import Path


class StepDirectory:
    """One step's directory, for as long as somebody holds on to it.

    number  no other step of the engine has it; names of files end with it, so none comes again.
    """

    def __init__(self, path: Path, number: int, free: deque[Path]) -> None:
        self.path, self.number = path, number
        self._give_back = weakref.finalize(self, free.append, path)
        self._give_back.atexit = False

    def remove(self) -> None:
        """After a failure: whoever still writes into it must not do so for another step."""
        self._give_back.detach()
        shutil.rmtree(self.path, ignore_errors=True)


def told_in(directory: StepDirectory, below: str) -> list[Path]:
    """The files that the step's tasks have left there; what others have left is removed."""
    inside, mine = directory.path / below, f"~{directory.number}"
    if not inside.is_dir():
        return []
    found = []
    for path in sorted(inside.iterdir()):
        if path.name.endswith(mine):
            found.append(path)
        else:
            path.unlink(missing_ok=True)
    return found


class StepDirectories:
    """Those of one engine."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._free: deque[Path] = deque()

    def take(self, number: int) -> StepDirectory:
        try:
            path = self._free.pop()
        except IndexError:
            path = self._root / f"step-{number}"
        path.mkdir(exist_ok=True)
        return StepDirectory(path, number, self._free)
