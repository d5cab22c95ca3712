"""The archive of Spark's classes: found by its Java, and no harm when it does not fit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.commands.prepare import make_archive
from holdfast.errors import HoldfastError
from holdfast.spark import class_archive
from holdfast.spark.class_archive import archive_path, java_options


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\necho no JVM here >&2\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without an archive."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    directory = tmp_path / "share" / "holdfast"
    directory.mkdir(parents=True)
    return directory


def put(environment: Path, content: bytes) -> Path:
    home = class_archive.java_home()
    assert home is not None
    path = environment / f"{class_archive.archive_name(home)}-{len(content)}.jsa"
    path.write_bytes(content)
    return path


def test_each_java_has_its_own(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes = [fake_java(tmp_path / version, version) for version in ("17.0.1", "17.0.2", "21")]
    for home in homes:
        monkeypatch.setenv("JAVA_HOME", str(home))
        assert java_options() == ""
        path = put(environment, b"classes")
        assert archive_path() == path
        assert f"-XX:SharedArchiveFile={path}" in java_options()
    (homes[0] / "release").write_text("updated")
    monkeypatch.setenv("JAVA_HOME", str(homes[0]))
    assert archive_path() is None


def test_one_that_was_cut_short_is_not_used(environment: Path) -> None:
    put(environment, b"classes").write_bytes(b"class")
    assert archive_path() is None


def test_without_java_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_options() == ""
    with pytest.raises(HoldfastError, match="no Java in JAVA_HOME or on the PATH"):
        make_archive()


def test_what_java_says_is_told_when_it_writes_none(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "java", "17")))
    with pytest.raises(HoldfastError, match=r"starts more slowly(.|\n)*no JVM here"):
        make_archive()
    assert list(environment.iterdir()) == []


def test_one_that_does_not_fit_is_passed_over_in_silence(environment: Path) -> None:
    put(environment, b"from another time" * 1_000)
    java = subprocess.run(
        ["java", *java_options().split(), "-version"], capture_output=True, text=True, timeout=60
    )
    assert java.returncode == 0
    assert "version" in java.stderr
    assert "warning" not in java.stdout + java.stderr
