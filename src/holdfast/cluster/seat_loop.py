"""The thread that runs a server's seat in its cluster: facts in, orders carried out.

    DATA/cluster/record.json    term, vote and register (``core.seat``), with a checksum
    DATA/cluster/life           a number for this directory: who comes back without it is another

The disk has a thread of its own; so do those who do what the register says, and every peer.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, assert_never

import msgspec

from holdfast.core.cluster_messages import (
    Answer,
    AskVote,
    ClusterFact,
    ClusterMessage,
    ClusterOrder,
    ClusterRecord,
    Follow,
    KeepRecord,
    Lead,
    Obey,
    Offered,
    RecordKept,
    RecordNotKept,
    Tell,
    TimePassed,
    Version,
    Vote,
    WakeAt,
)
from holdfast.core.election import ElectionTiming
from holdfast.core.machine import PeerError
from holdfast.core.seat import Seat
from holdfast.durable import Damaged, read_document, write_document
from holdfast.errors import HoldfastError
from holdfast.flight.wire import NOT_DECODED, WireError
from holdfast.nodes.journal import Journal

_MESSAGES: dict[str, Any] = {one.__name__: one for one in (AskVote, Vote, Lead, Follow)}
# All types are made known by one thread, at import: see flight/wire.py.
_KNOWN = [msgspec.json.Decoder(one) for one in (*_MESSAGES.values(), ClusterRecord)]


class NotTaken(HoldfastError):
    """The cluster has not taken a change.

    is_known  False: it may come to count all the same; look before trying again.
    """

    def __init__(self, why: str, is_known: bool = True) -> None:
        super().__init__(why)
        self.is_known = is_known


def plain_message(message: ClusterMessage) -> dict[str, Any]:
    """A message as JSON has it."""
    found: dict[str, Any] = msgspec.to_builtins(message)
    return {"type": type(message).__name__, **found}


def read_message(found: dict[str, Any]) -> ClusterMessage:
    """What ``plain_message`` gave; WireError if it is none."""
    try:
        message: ClusterMessage = msgspec.convert(found, _MESSAGES[found["type"]])
        return message
    except NOT_DECODED as error:
        raise WireError(f"not a message between the servers of a cluster: {error!r}") from None


def read_record(path: Path, voters: tuple[str, ...]) -> ClusterRecord:
    """The record on disk; of a first start, one with these voters."""
    if not path.exists():
        return ClusterRecord(voters=voters)
    try:
        return msgspec.convert(read_document(path), ClusterRecord)
    except NOT_DECODED as error:
        raise Damaged(path, f"it is no record of a cluster ({error!r})") from None


class SeatLoop:
    """Runs a seat; any thread may call it."""

    def __init__(
        self,
        address: str,
        path: Path,
        seeds: tuple[str, ...],
        timing: ElectionTiming,
        send: Callable[[str, ClusterMessage], None],
        obey: Callable[[Version, str], None],
        journal: Journal,
    ) -> None:
        """``path``: where the record is kept."""
        self._path = path
        self._send = send
        self._obey = obey
        self._journal = journal
        self._queue: queue.SimpleQueue[ClusterFact | None] = queue.SimpleQueue()
        self._wakes_at = 0
        self._offers: dict[int, Future[Version]] = {}
        self._numbers = iter(range(1, 1 << 62))
        self._lock = threading.Lock()
        self._disk = ThreadPoolExecutor(1, "holdfast-cluster-disk")
        self._said: tuple[str, int] = ("", 0)
        self.disk_problem = ""
        self._seat = Seat(address, timing, random.random, read_record(path, seeds), _now())
        # Replaced as one: a version with the value of another would undo what came between.
        self.view = self._seat.view()
        self._thread = threading.Thread(target=self._run, name="holdfast-seat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(5.0)
        self._disk.shutdown(wait=True)
        with self._lock:
            for future in self._offers.values():
                future.set_exception(NotTaken("this server has stopped", is_known=False))
            self._offers.clear()

    def post(self, fact: ClusterFact) -> None:
        self._queue.put(fact)

    def offer(
        self, value: str, based_on: Version, voters: tuple[str, ...] | None = None
    ) -> Future[Version]:
        """Have the register hold another value; the version under which a majority has it."""
        future: Future[Version] = Future()
        with self._lock:
            number = next(self._numbers)
            self._offers[number] = future
        self.post(Offered(number, based_on, value, voters))
        return future

    # -- the thread ----------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            wait_s = min(1.0, max(0.0, (self._wakes_at - _now()) / 1e6))
            try:
                fact: ClusterFact | None = self._queue.get(timeout=wait_s)
            except queue.Empty:
                fact = TimePassed()
            if fact is None:
                return
            self._take(fact)
            if _now() >= self._wakes_at:
                self._take(TimePassed())

    def _take(self, fact: ClusterFact) -> None:
        try:
            orders = self._seat.handle(fact, _now())
        except PeerError as error:
            self._journal.write("cluster", level="error", problem=str(error))
            return
        self.view = self._seat.view()
        for order in orders:
            self._carry_out(order)
        self._say_who_coordinates()

    def _carry_out(self, order: ClusterOrder) -> None:
        match order:
            case Tell(to, message):
                self._send(to, message)
            case KeepRecord():
                self._disk.submit(self._keep, order)
            case WakeAt(at):
                self._wakes_at = at
            case Obey(version, value):
                self._obey(version, value)
            case Answer(offer, version, why, is_known):
                with self._lock:
                    future = self._offers.pop(offer, None)
                if future is None:
                    return
                if version is not None:
                    future.set_result(version)
                else:
                    future.set_exception(NotTaken(why, is_known))
            case _:
                assert_never(order)

    def _keep(self, order: KeepRecord) -> None:
        try:
            write_document(self._path, msgspec.to_builtins(order.record))
        except OSError as error:
            if not self.disk_problem:
                self._journal.write("cluster record", level="error", problem=str(error))
            self.disk_problem = str(error)
            self.post(RecordNotKept(order.number))
        else:
            self.disk_problem = ""
            self.post(RecordKept(order.number))

    def _say_who_coordinates(self) -> None:
        found = (self.view.coordinator, self.view.term)
        if found != self._said:
            self._said = found
            who, term = found
            self._journal.write("coordinator", coordinator=who or "nobody", term=term)


def _now() -> int:
    return time.monotonic_ns() // 1_000
