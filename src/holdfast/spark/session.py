"""The SparkSession an engine runs on, set up for many small jobs.

The settings that matter, each measured on two cores with PySpark 4.3:

- Unix domain sockets between the JVM and its Python workers: over TCP every exchange waits
  40 ms for a delayed acknowledgement, which is most of the time of a small bucket. They are in a
  directory that nobody else may enter (``sockets``).
- Spark's own ports ask for a secret, made anew for each session: without it, every local user may
  send the JVM objects to unpack.
- No adaptive execution: it replans per job, and the number of partitions must belong to the
  network, not to the data.
- Little history: Spark keeps 1,000 jobs and stages for a UI that is off, which looks like a
  leak to whoever watches the process.
- More places for tasks than cores, for tasks that stay (``resident``); the cores are the default
  parallelism.
- The compiler and the collector a driver deserves (``jvm``).
- An archive of Spark's classes, if there is one (``class_archive``): half the time to start.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.cores import available_cores
from holdfast.spark import lookup_memory
from holdfast.spark.class_archive import java_options
from holdfast.spark.jvm import SETTING, jvm_options
from holdfast.spark.resident import places
from holdfast.spark.scratch import java_option, scratch_in
from holdfast.spark.sockets import socket_directory

_DEFAULTS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "16",
    "spark.ui.retainedStages": "16",
    "spark.ui.retainedTasks": "64",
    "spark.sql.ui.retainedExecutions": "4",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.cleaner.periodicGC.interval": "2min",
    "spark.shuffle.compress": "false",
    "spark.log.level": "ERROR",
}
# Settings the engine relies on for its results, so they are set on any session it is given.
_REQUIRED = {
    "spark.sql.adaptive.enabled": "false",
    # A prepared plan is copied with its children, and a reused exchange is nobody's child.
    "spark.sql.exchange.reuse": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "262144",
    # Buckets enter as an RDD whose rows the executors decode, never as rows in the plan.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
}
_LOCAL = re.compile(r"local(?:\[(\*|\d+)\])?")
_lock = threading.Lock()


def get_session(
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    directory: Path | None = None,
    drivers: int | None = None,
) -> SparkSession:
    """The process's SparkSession: the active one when there is one, else a new local one.

    ``config`` adds to or replaces the defaults when a session is made; the settings that
    results depend on are applied in any case. ``directory`` is the process's own, for sockets and
    temporary files. ``drivers``: this one lives long, beside so many on its machine, itself
    included (``jvm``).
    """
    with _lock:
        session = SparkSession.getActiveSession()
        if session is None:
            # Workers must run the interpreter, and so the libraries, of this process.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            master = master or "local[*]"
            builder = SparkSession.Builder().appName("holdfast").master(master)
            # The sockets first: below a temporary directory of its own their names may not fit.
            options = jvm_options(config or {}, drivers) + java_options()
            given = {
                **_DEFAULTS,
                **_private(master, directory),
                **_places(master, directory, options),
                **_with_residents(master),
            }
            given |= config or {}
            given.pop(SETTING, None)
            given |= _lookup_memory(given.pop(lookup_memory.SETTING, None))
            for key, value in given.items():
                builder = builder.config(key, value)
            session = builder.getOrCreate()
        for key, value in _REQUIRED.items():
            session.conf.set(key, value)
        return session


def _is_local(master: str) -> bool:
    return re.match(r"local(\[|$)", master) is not None


def _with_residents(master: str) -> dict[str, str]:
    """Room for tasks that stay (``resident``) beside as many others as there are cores."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return {}
    named = found[1] or "1"
    cores = available_cores() if named == "*" else int(named)
    return {"spark.master": f"local[{places(cores)}]", "spark.default.parallelism": str(cores)}


def _places(master: str, directory: Path | None, options: str) -> dict[str, str]:
    """What the JVM is told, and where it and its workers put temporary files.

    On a cluster the executors' machines have no directory of this process's, and sockets would
    lie below the driver's temporary one, where their names may not fit.
    """
    if directory is None or not _is_local(master):
        return {"spark.driver.extraJavaOptions": options}
    scratch = scratch_in(directory)
    return {
        "spark.driver.extraJavaOptions": options + java_option(scratch),
        "spark.local.dir": str(scratch),
    }


def _lookup_memory(said: str | None) -> dict[str, str]:
    """The bound for this process, whose threads look keys up, too, and for its workers."""
    config = {} if said is None else {lookup_memory.SETTING: said}
    mib = lookup_memory.lookup_memory_mib(config)
    lookup_memory.MEMORY.most_bytes = mib << 20
    return {f"spark.executorEnv.{lookup_memory.VARIABLE}": str(mib)}


def _private(master: str, directory: Path | None) -> dict[str, str]:
    """What keeps others on this machine out; a cluster has its own secret and its own machines.

    Its executors must reach the driver, too: where, Spark finds out, or the user says.
    """
    if not _is_local(master):
        return {}
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.authenticate": "true",  # Spark makes a secret for a local session by itself
        "spark.python.unix.domain.socket.dir": str(socket_directory(directory)),
    }


def activate(spark: SparkSession) -> None:
    """Make ``spark`` the session of this thread: Spark's plans look for it there."""
    assert spark._jvm is not None
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
