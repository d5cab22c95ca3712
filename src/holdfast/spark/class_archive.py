"""An archive of Spark's classes, with which its JVM starts in half the time.

Before Spark is up, a JVM finds, verifies and links thousands of classes; on two cores that is 2 of
the 4 seconds it takes. Java can keep the outcome in a file, which later JVMs map into memory and
share (class data sharing). ``holdfast prepare`` makes it, once for an environment, in which it
stays; the targets of the Makefile see to it themselves.

A session uses the archive if there is one for its Java and its Spark. The JVM checks that it fits,
and starts without it if it does not; that it is whole is seen to here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import functions as F

from holdfast.errors import HoldfastError, InputError

_SECONDS = 120.0


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
    for path in _directory().glob(f"{_name(home)}-*.jsa"):
        # A JVM would die of one that was cut short.
        if path.stat().st_size == int(path.stem.rpartition("-")[2]):
            return path
    return None


def java_options() -> str:
    """What a JVM must be told to use the archive; nothing if there is none."""
    path = archive_path()
    return "" if path is None else f" {_use(path)}"


def make_archive() -> Path:
    """Make the archive for this Java and this Spark, and try it."""
    home = java_home()
    if home is None:
        raise InputError("there is no Java in JAVA_HOME or on the PATH; Spark needs 17 or newer")
    _directory().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_directory()) as temporary:
        written = Path(temporary) / "classes.jsa"
        _in_a_process(f"-XX:ArchiveClassesAtExit={written}")
        if not written.exists():
            raise HoldfastError(f"{home}: this Java wrote no archive of Spark's classes")
        _in_a_process(_use(written))
        with written.open("rb") as archive:
            os.fsync(archive.fileno())
        for older in _directory().glob("*.jsa"):
            older.unlink()
        path = _directory() / f"{_name(home)}-{written.stat().st_size}.jsa"
        return written.rename(path)


def _directory() -> Path:
    return Path(sys.prefix) / "share" / "holdfast"


def _name(home: Path) -> str:
    release = home / "release"
    known = [str(home), release.read_text() if release.exists() else "", pyspark.__version__]
    return "spark-" + hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]


def _use(path: Path) -> str:
    return f"-XX:SharedArchiveFile={path} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"


def _in_a_process(option: str) -> None:
    """A process of its own, because a JVM writes the archive when it ends."""
    call = "from holdfast.spark.class_archive import run_query; run_query()"
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
    from pyspark import SparkContext

    from holdfast import Network, window
    from holdfast.spark.engine import Engine
    from holdfast.spark.jvm import FIRST
    from holdfast.spark.session import get_session
    from holdfast.spark.warming import warm_up

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
