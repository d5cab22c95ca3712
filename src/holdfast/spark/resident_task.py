"""A Spark task that stays (``resident``), seen from its worker."""

from __future__ import annotations

import contextlib
import pickle
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from holdfast.spark.task import freeze_imports

DONE, CANNOT_LOAD = b"\0", b"\1"
_SIZE = struct.Struct("!Q")


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


@dataclass(frozen=True)
class ResidentTask:
    """What Spark calls, once: it takes orders until the driver lets it go."""

    address: str

    def __call__(self, number: int, nothing: Iterable[Any]) -> Iterator[bytes]:
        for _ in nothing:
            pass  # a worker whose input was not read to its end is not used again
        freeze_imports()
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(self.address)
            except OSError:
                return iter(())  # it began too late, and is wanted no more
            with connection.makefile("rb") as orders:
                self._obey(connection, orders)
        return iter(())

    def _obey(self, connection: socket.socket, orders: BinaryIO) -> None:
        jobs: dict[str, Does] = {}
        while data := _read(orders):
            job, pickled, order = pickle.loads(data)
            if pickled is not None:
                # If it cannot be loaded, Spark, which may know more by now, is to try it.
                with contextlib.suppress(Exception):
                    jobs[job] = pickle.loads(pickled)
            does = jobs.get(job)
            if does is not None:
                does.carry_out(order)
            try:
                connection.sendall(CANNOT_LOAD if does is None else DONE)
            except OSError:
                return  # nobody waits for it


def _read(orders: BinaryIO) -> bytes:
    """The next order; nothing if there is none."""
    try:
        head = orders.read(_SIZE.size)
        return orders.read(_SIZE.unpack(head)[0]) if len(head) == _SIZE.size else b""
    except OSError:
        return b""
