"""How a driver's JVM compiles and collects: a choice between a quick start and a high speed.

Java's second compiler makes expressions in the JVM faster, and takes seconds of processor time
before it does; the first tier alone is done at once. Measured on two busy cores with
buckets of 300 tuples, which only schedule in the JVM: its threads took 36, 24 and 19 ms on average
in the first, second and third hundred with the first tier, 92, 34 and 27 ms with
the whole compiler. So the whole compiler and the parallel collector are for a driver that lives
long and has cores to spare for them. Where several drivers share a small machine, or one lives
for a test, it is the first tier and the serial collector.

The rule: the whole compiler if the driver is known to live long (``holdfast run``, the replicas of
a deployment) and there are at least four cores for each such driver on its machine. The setting
``holdfast.jit`` ("full", "first" or "auto", the default) in the deployment's ``[spark]`` config, or
the environment's HOLDFAST_JIT, overrules it; ``spark.driver.extraJavaOptions`` replaces them all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast.cores import available_cores
from holdfast.errors import InputError

SETTING, VARIABLE = "holdfast.jit", "HOLDFAST_JIT"
FIRST = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
FULL = "-XX:+UseParallelGC"
CORES_FOR_FULL = 4


def jvm_options(config: Mapping[str, str], drivers: int | None, cores: int | None = None) -> str:
    """The options for a driver that shares its machine with others, ``drivers`` in all.

    None stands for a driver of which it is not known that it lives long.
    """
    chosen = config.get(SETTING) or os.environ.get(VARIABLE) or "auto"
    if chosen not in ("auto", "first", "full"):
        where = SETTING if config.get(SETTING) else VARIABLE
        raise InputError(f"{where} must be 'auto', 'first' or 'full', it is {chosen!r}")
    if chosen != "auto":
        return FULL if chosen == "full" else FIRST
    have = available_cores() if cores is None else cores
    alone = drivers is not None and have >= CORES_FOR_FULL * max(1, drivers)
    return FULL if alone else FIRST
