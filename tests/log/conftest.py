"""Where the logs of these tests are."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.log import cursor


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, for tests with thousands of files that need no disk."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared, prefix="holdfast-") as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs here are small; so are the pieces that are read ahead."""
    monkeypatch.setattr(cursor, "AHEAD_BYTES", 600)
