"""A Spark task that stays (``resident``), seen from its worker.

What a job for the bucket would have, it has. Functions of the query that travel by value are loaded
anew for each order, as Spark does for each job: what they keep to themselves, in a closure or a
global, lasts for a bucket, and does not depend on which task has done which buckets before. A job
whose functions count in an accumulator is left to Spark, which hears of it when a task ends.

Spark ends workers that have had nothing to do for a minute. One that stays lets go of what it can
instead: files of state that nobody names any more, but which take their room on the disk as long as
they are mapped, and memory that Arrow keeps for itself.
"""

from __future__ import annotations

import contextlib
import pickle
import select
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark import accumulators, cloudpickle

from holdfast.spark.open_runs import forget_gone_runs
from holdfast.spark.task import freeze_imports

DONE, CANNOT_LOAD = b"\0", b"\1"
_SIZE = struct.Struct("!Q")
# Whatever is pickled by value is made again by functions of this module.
_BY_VALUE = cloudpickle.__name__.rpartition(".")[2].encode()


@dataclass(frozen=True)
class Order:
    """One task's part of a job for a bucket.

    task   its number among the job's tasks.
    told   what the steps are told (``task.PROPERTY``), as JSON.
    files  where the bucket is and where results go (``column_task.COLUMNS``), as JSON.
    """

    task: int
    told: str
    files: str


class Does(Protocol):
    """A job's task."""

    def carry_out(self, order: Order) -> None: ...

    def take_back(self, order: Order) -> None:
        """Leave no file behind of what was carried out."""


class _Job:
    """A job that the task knows."""

    def __init__(self, pickled: bytes) -> None:
        known = dict(accumulators._accumulatorRegistry)
        self._pickled = pickled
        self._loaded: Does | None = pickle.loads(pickled)
        if len(accumulators._accumulatorRegistry) > len(known):
            accumulators._accumulatorRegistry.clear()
            accumulators._accumulatorRegistry.update(known)
            raise LookupError("what it counts is told when its task ends, and this one stays")

    def does(self) -> Does:
        """Its task, as a job for one bucket would have it."""
        does = pickle.loads(self._pickled) if self._loaded is None else self._loaded
        if _BY_VALUE in self._pickled:
            self._loaded = None
        return does


@dataclass(frozen=True)
class ResidentTask:
    """What Spark calls, once: it takes orders until the driver lets it go.

    idle_seconds  after so long without an order it lets go of what it can, and then as often.
    """

    address: str
    idle_seconds: float = 5.0

    def __call__(self, number: int, nothing: Iterable[Any]) -> Iterator[bytes]:
        for _ in nothing:
            pass  # a worker whose input was not read to its end is not used again
        freeze_imports()
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(self.address)
            except OSError:
                return iter(())  # it began too late, and is wanted no more
            self._obey(connection)
        return iter(())

    def _obey(self, connection: socket.socket) -> None:
        jobs: dict[str, _Job] = {}
        while data := self._read(connection):
            name, pickled, order = pickle.loads(data)
            if pickled is not None:
                # If it cannot be loaded, Spark, which may know more by now, is to try it.
                with contextlib.suppress(Exception):
                    jobs[name] = _Job(pickled)
            does = jobs[name].does() if name in jobs else None
            if does is not None:
                does.carry_out(order)
            try:
                connection.sendall(CANNOT_LOAD if does is None else DONE)
            except OSError:
                # Nobody waits for it any more, and who did has cleared up before it was done.
                if does is not None:
                    does.take_back(order)
                return

    def _read(self, connection: socket.socket) -> bytes:
        """The next order; nothing if there is none."""
        waiting = select.poll()
        waiting.register(connection, select.POLLIN)
        while not waiting.poll(self.idle_seconds * 1000):
            _let_go()
        head = _exactly(connection, _SIZE.size)
        return _exactly(connection, _SIZE.unpack(head)[0]) if head else b""


def _exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes; nothing if they do not come."""
    data = bytearray()
    with contextlib.suppress(OSError):
        while len(data) < size and (piece := connection.recv(size - len(data))):
            data += piece
    return bytes(data) if len(data) == size else b""


def _let_go() -> None:
    """Keep nothing that only the next order, if it ever comes, may need."""
    forget_gone_runs()
    pa.default_memory_pool().release_unused()
