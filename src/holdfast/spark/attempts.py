"""Names for what is half written, so that two attempts at one task never write the same file.

On a cluster Spark runs a task once more while the first attempt may still be at work: where an
executor is lost to the driver but alive, or slow. Both leave the same files with the same bytes,
and the last to rename its own puts in place what is there already.
"""

from __future__ import annotations

from pyspark import TaskContext

PART = ".part"


def part_of(path: object) -> str:
    """What this attempt calls a file until it is complete."""
    context = TaskContext.get()
    attempt = "driver" if context is None else context.taskAttemptId()
    return f"{path}.{attempt}{PART}"
