"""``holdfast prepare``: make the archive with which Spark starts in half the time.

A JVM writes it when it ends, of the classes it has used, so a small query runs in a process of its
own; and once more, to see that Spark runs with the archive.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import functions as F

from holdfast.errors import HoldfastError, InputError
from holdfast.spark.class_archive import (
    archive_directory,
    archive_name,
    java_home,
    use_archive,
)
from holdfast.spark.engine import Engine
from holdfast.spark.jvm import FIRST
from holdfast.spark.session import get_session
from holdfast.spark.warming import warm_up

_SECONDS = 120.0


def make_archive() -> Path:
    """Make the archive for this Java and this Spark, and try it."""
    home = java_home()
    if home is None:
        raise InputError("there is no Java in JAVA_HOME or on the PATH; Spark needs 17 or newer")
    archive_directory().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive_directory()) as temporary:
        written = Path(temporary) / "classes.jsa"
        _in_a_process(f"-XX:ArchiveClassesAtExit={written}")
        if not written.exists():
            raise HoldfastError(f"{home}: this Java wrote no archive of Spark's classes")
        _in_a_process(use_archive(written))
        with written.open("rb") as archive:
            os.fsync(archive.fileno())
        for older in archive_directory().glob("*.jsa"):
            older.unlink()
        path = archive_directory() / f"{archive_name(home)}-{written.stat().st_size}.jsa"
        return written.rename(path)


def _in_a_process(option: str) -> None:
    """A process of its own, because a JVM writes the archive when it ends."""
    call = "from holdfast.commands.prepare import run_query; run_query()"
    ran = subprocess.run(
        [sys.executable, "-c", call, option], capture_output=True, text=True, timeout=_SECONDS
    )
    if ran.returncode != 0:
        raise HoldfastError(
            f"Spark did not run with {option}; it runs without, and starts more slowly. It said:\n"
            f"{ran.stderr[-2000:]}"
        )


def run_query() -> None:
    """Run a small query in a JVM that is told one thing more, and end it."""
    # Only here: a session asks this file for its options.

    from holdfast import Network, window

    options = f"{FIRST} {sys.argv[1]}"
    spark = get_session("local[2]", {"spark.driver.extraJavaOptions": options})
    network = Network("classes", bucket="1 second", partitions=2, spark=spark)
    left = network.source("left", "key string, value double")
    right = network.source("right", "key string, more bigint")
    joined = left.filter("value >= 0").join(right, "key", within="1 second")
    joined.groupBy(window("1 second"), "key").agg(F.avg("value").alias("value")).output("out")
    engine = Engine(network)
    warm_up(engine)
    engine.close()
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    if process.wait(_SECONDS) != 0:
        sys.exit(f"the JVM ended with {process.returncode}")
