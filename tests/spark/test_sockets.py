"""The directory of the sockets between the JVM and its workers."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

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


def test_spark_takes_every_directory_it_is_given(tmp_path: Path, spark: SparkSession) -> None:
    room = 70 - len(os.fsencode(tmp_path / "sockets"))
    configuration = spark._jsparkSession.sparkContext().conf().clone()
    key = "spark.python.unix.domain.socket.dir"
    jvm: Any = spark._jvm
    entry = jvm.org.apache.spark.internal.config.Python.PYTHON_UNIX_DOMAIN_SOCKET_DIR()
    for length in range(max(1, room - 12), room):
        made = socket_directory(tmp_path / ("d" * length))
        configuration.set(key, str(made))
        assert configuration.get(entry).get() == str(made)
        shutil.rmtree(made)
