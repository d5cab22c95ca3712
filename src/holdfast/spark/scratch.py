"""Where Spark and its workers put what is worth nothing once they have ended.

A JVM that is killed leaves its directories behind. In the common temporary directory nobody would
ever know whose they are; in one of the process's own they are removed when it starts again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path


def scratch_in(directory: Path) -> Path:
    """``spark`` in a process's directory, private and empty, as its temporary directory.

    Of this process, too: it makes Spark's first files, and its workers have its environment.
    """
    scratch = directory.absolute() / "spark"
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(scratch)
    scratch.mkdir(parents=True, mode=0o700)
    os.environ["TMPDIR"] = str(scratch)
    tempfile.tempdir = None  # what was found before
    return scratch


def java_option(scratch: Path) -> str:
    """What a JVM must be told to use it; what it writes when it crashes stays beside it."""
    report = scratch.with_name("java-crash.log")
    options = (f"-Djava.io.tmpdir={scratch}", f"-XX:ErrorFile={report}")
    return "".join(f' "{each}"' if " " in each else f" {each}" for each in options)
