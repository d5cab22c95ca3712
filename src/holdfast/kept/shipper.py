"""Sends the checkpoints of one copy to another, on a connection and a thread of their own.

Packing and sending take time that neither the driver nor the heartbeats may wait for. What
cannot be sent comes back as CheckpointNotSent; the driver then tries again when it likes.

Of those that wait only the newest is sent, of what was asked for and of what goes out unasked: the
other copy has no use for the rest. One that takes longer to send than its receiver takes to ask
anew would otherwise always be followed by one for which it is too late.

One may take as long as it takes. It is called off if no piece of it got out for ``STUCK_SECONDS``
(``watchdog``): then its receiver does not read, and is sent nothing until that call has ended, as
it does at last when the receiver or its machine does.

What is sent of the state depends on how it is kept: packed, or the piece of the log that has it.
A whole one is made ready in pieces between jobs (``quiet``): who lends a state is not late for it.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.flight as flight

from holdfast.core.events import CheckpointNotSent, Event
from holdfast.core.laying import to_build_on
from holdfast.core.records import Checkpoint, InLog
from holdfast.core.settings import Keeping
from holdfast.errors import HoldfastError
from holdfast.flight.links import Links
from holdfast.flight.peers import connect, explain
from holdfast.flight.roles import Role
from holdfast.flight.security import Security
from holdfast.kept.packed_codec import SCHEMA, encode_checkpoint
from holdfast.kept.quiet import Quiet, Unhurried, at_once
from holdfast.kept.stream_store import StreamStore
from holdfast.kept.watchdog import Watchdog
from holdfast.log.payload import is_window
from holdfast.packed import Chain, chain_bytes, chain_rows
from holdfast.spark.chains import Handle, Workshop

STUCK_SECONDS = 30.0
# A copy without an engine cannot make one state of many changes; it is sent a whole one then.
LONGEST_CHAIN = 64
_SMALL_BYTES = 1 << 20

Encoded = tuple[pa.RecordBatch, dict[str, Any]]


@dataclass
class Shipped:
    """What has been sent so far. Elements are state rows and tuples of output queues.

    ``beside_seconds``: for how long jobs ran while whole states were made ready.
    """

    checkpoints: int = 0
    whole: int = 0
    elements: int = 0
    bytes: int = 0
    seconds: float = 0.0
    beside_seconds: float = 0.0


class CalledOff(HoldfastError):
    """Nothing of a checkpoint got out for so long that nobody waits for it any more."""


class Sent(Protocol):
    """How a checkpoint's state is put for the wire."""

    def is_whole(self, checkpoint: Checkpoint) -> bool:
        """Whether all of the state goes over the wire, rather than what has changed."""

    def encode(
        self, checkpoint: Checkpoint, whole: bool, manner: Unhurried
    ) -> tuple[Iterable[Encoded], int]:
        """What goes over the wire, and how many rows of state that are."""


class Shipper:
    """Checkpoints on their way to one partner."""

    def __init__(
        self,
        name: str,
        partner: str,
        sent: Sent,
        locate: Callable[[], str],
        security: Security,
        links: Links,
        post: Callable[[Event], None],
        on_problem: Callable[[str, str], None],
        quiet: Quiet,
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:
        """``stuck_seconds``: one of which nothing got out for so long is called off."""
        self.total = Shipped()
        self._partner = partner
        self._sent = sent
        self._locate = locate
        self._security = security
        self._name = name
        self._links = links
        self._post = post
        self._on_problem = on_problem
        self._quiet = quiet
        self._client: flight.FlightClient | None = None
        self._queue: queue.SimpleQueue[Checkpoint | None] = queue.SimpleQueue()
        # The number of the last one of each kind.
        self._newest: dict[tuple[bool, bool], int] = {}
        self._stuck_text = f"nothing of it got out for {stuck_seconds:g} s"
        self._lock = threading.Lock()
        # The number of the one under way; whether it was called off, and its call has not ended.
        self._under_way: int | None = None
        self._called_off = False
        self._watchdog = Watchdog(f"{name} shipper", stuck_seconds, self._call_off)
        self._thread = threading.Thread(target=self._run, name=f"{name} shipper", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._watchdog.start()

    def ship(self, checkpoint: Checkpoint) -> None:
        with self._lock:
            called_off = self._called_off
            if not called_off:
                self._newest[_kind(checkpoint)] = checkpoint.number
                self._queue.put(checkpoint)
        if called_off:
            self._post(CheckpointNotSent(checkpoint.number, "the one before it is stuck"))

    def end(self) -> None:
        """Send what is queued, and nothing after it."""
        self._queue.put(None)

    def close(self) -> None:
        self.end()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def _run(self) -> None:
        while True:
            checkpoint = self._queue.get()
            if checkpoint is None:
                self._watchdog.close()
                return
            if checkpoint.number != self._newest[_kind(checkpoint)]:
                self._post(CheckpointNotSent(checkpoint.number, "a newer one follows"))
                continue
            started = time.monotonic()
            self._under_way = checkpoint.number
            try:
                self._ship(checkpoint)
            except Exception as error:
                self._client = None
                if not self._called_off:
                    self._not_sent(checkpoint.number, explain(error))
            with self._lock:
                self._under_way, self._called_off = None, False
            self.total.seconds += time.monotonic() - started

    def _not_sent(self, number: int, reason: str) -> None:
        self._on_problem(self._partner, f"checkpoint not sent: {reason}")
        self._post(CheckpointNotSent(number, reason))

    def _call_off(self) -> None:
        """The one under way does not get on; nor would those that wait for it."""
        with self._lock:
            number = self._under_way
            if number is None or self._called_off:
                return
            self._called_off = True
            waiting = []
            with suppress(queue.Empty):
                while True:
                    waiting.append(self._queue.get_nowait())
            if None in waiting:
                self._queue.put(None)
        self._not_sent(number, self._stuck_text)
        for one in waiting:
            if one is not None:
                self._post(CheckpointNotSent(one.number, "the one before it is stuck"))

    def _ship(self, checkpoint: Checkpoint) -> None:
        whole = self._sent.is_whole(checkpoint)
        manner = Unhurried(self._quiet) if whole else at_once()
        with manner:
            encoded, elements = self._sent.encode(checkpoint, whole, manner)
        self.total.whole += whole
        if not self._links.wait_to_reach(self._partner, 2.0):
            raise TimeoutError("the link is cut")
        self._links.travel(self._partner)
        if self._client is None:
            self._client = connect(self._locate(), self._security)
        headers = self._security.headers(self._name, Role.REPLICATE)
        options = flight.FlightCallOptions(headers=headers)
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"checkpoint": True}))
        with self._watchdog:
            writer, _ = self._client.do_put(descriptor, SCHEMA, options)
        try:
            self._write(writer, _one_by_one(encoded, manner))
        finally:
            with self._watchdog:
                writer.close()
        self.total.beside_seconds += manner.beside_seconds
        self.total.checkpoints += 1
        self.total.elements += elements + sum(
            frame.header.count for queue in checkpoint.queues for frame in queue.frames
        )

    def _write(self, writer: flight.FlightStreamWriter, encoded: Iterable[Encoded]) -> None:
        for batch, about in encoded:
            metadata = json.dumps(about).encode()
            with self._watchdog:
                writer.write_with_metadata(batch, metadata)
            if self._called_off:
                raise CalledOff(self._stuck_text)
            self.total.bytes += batch.nbytes + len(metadata)


def _kind(checkpoint: Checkpoint) -> tuple[bool, bool]:
    """What it is for: one that joins, a copy that asked to jump, or one that stands by."""
    return checkpoint.answers is not None, checkpoint.wanted


def _one_by_one(encoded: Iterable[Encoded], manner: Unhurried) -> Iterator[Encoded]:
    """Each is made ready in its turn, and sent out of turn: a slow link holds up nobody."""
    coming = iter(encoded)
    while True:
        with manner:
            found = next(coming, None)
        if found is None:
            return
        yield found


def _together(shippers: Mapping[str, Shipper]) -> Shipped:
    sums = zip(*(astuple(one.total) for one in shippers.values()), strict=True)
    return Shipped(*map(sum, sums))


class SentStates:
    """Packed states: whole, or what has changed since one that the other copy has."""

    def __init__(self, workshop: Workshop, receiver_merges: bool) -> None:
        """``receiver_merges``: the other copy has an engine, and makes one state of changes."""
        self._workshop = workshop
        self._receiver_merges = receiver_merges
        self._states: dict[int, Handle] = {}
        self._whole_bytes = 0
        self._changed_bytes = 0
        self._changes = 0

    def is_whole(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.base not in self._states or self._is_long()

    def encode(
        self, checkpoint: Checkpoint, whole: bool, manner: Unhurried
    ) -> tuple[Iterable[Encoded], int]:
        handle: Handle = checkpoint.state  # type: ignore[assignment]
        base = checkpoint.base
        since = None if base is None else self._states.get(base)
        chain = self._workshop.pack(handle, since, whole, manner.breathe)
        self._count(chain, whole)
        self._states = to_build_on(self._states, checkpoint, handle)
        return encode_checkpoint(checkpoint, chain, None, manner.breathe), chain_rows(chain)

    def _count(self, chain: Chain, whole: bool) -> None:
        size = chain_bytes(chain)
        if whole:
            self._whole_bytes, self._changed_bytes, self._changes = size, 0, 0
        else:
            self._changed_bytes += size
            self._changes += 1

    def _is_long(self) -> bool:
        """Whether a whole state costs its receiver less than one more set of changes."""
        if self._receiver_merges:
            return False
        much = self._changed_bytes > max(_SMALL_BYTES, 2 * self._whole_bytes)
        return much or self._changes >= LONGEST_CHAIN


class SentWhole:
    """What a replica that joins needs: the whole packed state, or none where none is kept."""

    def __init__(self, workshop: Workshop, keeping: Keeping) -> None:
        self._workshop = workshop
        self._keeping = keeping

    def is_whole(self, checkpoint: Checkpoint) -> bool:
        return True

    def encode(
        self, checkpoint: Checkpoint, whole: bool, manner: Unhurried
    ) -> tuple[Iterable[Encoded], int]:
        handle: Handle = checkpoint.state  # type: ignore[assignment]
        packs = self._keeping is not Keeping.NOTHING
        chain = self._workshop.pack(handle, None, True, manner.breathe) if packs else ()
        return encode_checkpoint(checkpoint, chain, None, manner.breathe), chain_rows(chain)


class SentPieces(SentWhole):
    """Pieces of the log that has the window states: everything since the last time, or from the
    oldest window state that the record needs. A new shard, which divides it, gets the very state.

    The record says which, not the disk: what the disk needs by now may be less.
    """

    def __init__(self, store: StreamStore, stream: str, workshop: Workshop) -> None:
        super().__init__(workshop, Keeping.WINDOWS)
        self._store = store
        self._stream = stream
        # Where the log ended, by the numbers of checkpoints.
        self._ends: dict[int, int] = {}

    def is_whole(self, checkpoint: Checkpoint) -> bool:
        return not isinstance(checkpoint.state, InLog) or checkpoint.base not in self._ends

    def encode(
        self, checkpoint: Checkpoint, whole: bool, manner: Unhurried
    ) -> tuple[Iterable[Encoded], int]:
        if not isinstance(checkpoint.state, InLog):
            return super().encode(checkpoint, whole, manner)
        begin = None if checkpoint.base is None else self._ends.get(checkpoint.base)
        piece = self._store.piece(self._stream, checkpoint.record, begin, manner.breathe)
        self._ends = to_build_on(self._ends, checkpoint, piece.end_lsn)
        frames = piece.logged.frames
        windows = sum(each.header.count for each in frames if is_window(each.header.kind))
        return encode_checkpoint(checkpoint, (), piece.logged, manner.breathe), windows


class Shippers:
    """One for each who is sent checkpoints: the other copies, or whoever joins."""

    def __init__(self, make: Callable[[str], Shipper], copies: tuple[str, ...]) -> None:
        """``copies``: the other copies, if there are any; they are sent changes."""
        self._make = make
        self.own = {name: make(name) for name in copies}
        # To those that join, or take over; one is made when it is asked for.
        self.lent: dict[str, Shipper] = {}

    def start(self) -> None:
        for one in self.own.values():
            one.start()

    @property
    def total(self) -> Shipped:
        """What the other copies were sent, all together."""
        return _together(self.own)

    @property
    def total_lent(self) -> Shipped:
        """The same of those that joined."""
        return _together(self.lent)

    def turn_to(self, copies: tuple[str, ...]) -> None:
        """These are the other copies now."""
        for name in self.own.keys() - {*copies}:
            self.own.pop(name).end()
        for name in copies:
            if name not in self.own:
                self.own[name] = self._make(name)
                self.own[name].start()

    def ship(self, partner: str, checkpoint: Checkpoint) -> None:
        """Send a checkpoint to whoever is to have it."""
        if partner not in self.own and partner not in self.lent:
            self.lent[partner] = self._make(partner)
            self.lent[partner].start()
        (self.own.get(partner) or self.lent[partner]).ship(checkpoint)

    def close(self) -> None:
        for one in (*self.own.values(), *self.lent.values()):
            one.close()
