"""The directory of the sockets between the JVM and its workers."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

from holdfast.spark.sockets import socket_directory

NAME = "/.00000000-0000-0000-0000-000000000000.sock"


@pytest.mark.parametrize("beside", [None, Path("process")])
def test_names_fit_also_where_the_temporary_directory_has_a_long_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: Path | None
) -> None:
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    made = socket_directory(None if beside is None else long / beside)
    assert len(os.fsencode(made)) + len(NAME) <= 107
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    shutil.rmtree(made)
