"""An archive of Spark's classes, with which its JVM starts in half the time.

Before Spark is up, a JVM finds, verifies and links thousands of classes; on two cores that is 2 of
the 4 seconds it takes. Java can keep the outcome in a file, which later JVMs map into memory and
share (class data sharing). ``holdfast prepare`` (``commands/prepare.py``) makes it, once for an
environment, in which it stays; the targets of the Makefile see to it themselves.

A session uses the archive if there is one for its Java and its Spark. The JVM checks that it fits,
and starts without it if it does not; that it is whole is seen to here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import pyspark


def java_home() -> Path | None:
    """The home of the Java that Spark will run on; None without one."""
    chosen = os.environ.get("JAVA_HOME")
    found = f"{chosen}/bin/java" if chosen else shutil.which("java")
    if found is None or not Path(found).exists():
        return None
    return Path(found).resolve().parent.parent


def archive_path() -> Path | None:
    """The archive for this Java and this Spark, if it is there and whole."""
    home = java_home()
    if home is None:
        return None
    for path in archive_directory().glob(f"{archive_name(home)}-*.jsa"):
        # A JVM would die of one that was cut short.
        if path.stat().st_size == int(path.stem.rpartition("-")[2]):
            return path
    return None


def java_options() -> str:
    """What a JVM must be told to use the archive; nothing if there is none."""
    path = archive_path()
    return "" if path is None else f" {use_archive(path)}"


def archive_directory() -> Path:
    """Where archives are kept: with the environment."""
    return Path(sys.prefix) / "share" / "holdfast"


def archive_name(home: Path) -> str:
    """How the name of an archive begins that fits this Java and this Spark."""
    release = home / "release"
    known = [str(home), release.read_text() if release.exists() else "", pyspark.__version__]
    return "spark-" + hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]


def use_archive(path: Path) -> str:
    """What a JVM must be told to use the archive at ``path``."""
    return f"-XX:SharedArchiveFile={path} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
