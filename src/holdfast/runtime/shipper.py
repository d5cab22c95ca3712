"""Sends the checkpoints of one copy to the other, on a connection and a thread of their own.

Packing and sending take time that neither the driver nor the heartbeats may wait for. What
cannot be sent comes back as refused; the driver then tries again when it likes.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from holdfast.core.events import Event, MessageArrived
from holdfast.core.messages import CheckpointRefused, Refusal
from holdfast.core.records import Checkpoint
from holdfast.flight.checkpoints import SCHEMA, encode_checkpoint
from holdfast.flight.links import Links
from holdfast.flight.peers import connect, explain
from holdfast.flight.roles import Role
from holdfast.flight.security import Security
from holdfast.runtime.keeper import LONGEST_CHAIN
from holdfast.spark.chains import Chain, Handle, Workshop, chain_bytes, chain_rows

SHIP_SECONDS = 30.0
_SMALL_BYTES = 1 << 20

Encoded = tuple[pa.RecordBatch, dict[str, Any]]


@dataclass
class Shipped:
    """What has been sent so far. Elements are state rows and tuples of output queues."""

    checkpoints: int = 0
    whole: int = 0
    elements: int = 0
    bytes: int = 0
    seconds: float = 0.0


class Shipper:
    """Checkpoints on their way to one partner."""

    def __init__(
        self,
        name: str,
        partner: str,
        locate: Callable[[], str],
        security: Security,
        links: Links,
        workshop: Workshop,
        post: Callable[[Event], None],
        on_problem: Callable[[str, str], None],
        receiver_merges: bool,
    ) -> None:
        """``receiver_merges``: the other copy has an engine, and makes one state of changes."""
        self._receiver_merges = receiver_merges
        self.total = Shipped()
        self._partner = partner
        self._locate = locate
        self._security = security
        self._name = name
        self._links = links
        self._workshop = workshop
        self._post = post
        self._on_problem = on_problem
        self._client: flight.FlightClient | None = None
        self._states: dict[int, Handle] = {}
        self._whole_bytes = 0
        self._changed_bytes = 0
        self._changes = 0
        self._queue: queue.SimpleQueue[Checkpoint | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"{name} shipper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ship(self, checkpoint: Checkpoint) -> None:
        self._queue.put(checkpoint)

    def close(self) -> None:
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(2.0)

    def _run(self) -> None:
        while True:
            checkpoint = self._queue.get()
            if checkpoint is None:
                return
            started = time.monotonic()
            try:
                self._ship(checkpoint)
            except Exception as error:
                self._client = None
                self._on_problem(self._partner, f"checkpoint not sent: {explain(error)}")
                refused = CheckpointRefused(checkpoint.number, Refusal.FAILED)
                self._post(MessageArrived(self._partner, refused))
            self.total.seconds += time.monotonic() - started

    def _ship(self, checkpoint: Checkpoint) -> None:
        encoded, elements = self.encode(checkpoint)
        if not self._links.wait_to_reach(self._partner, 2.0):
            raise TimeoutError("the link is cut")
        if self._client is None:
            self._client = connect(self._locate(), self._security)
        headers = self._security.headers(self._name, Role.REPLICATE)
        options = flight.FlightCallOptions(timeout=SHIP_SECONDS, headers=headers)
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"checkpoint": True}))
        writer, _ = self._client.do_put(descriptor, SCHEMA, options)
        with writer:
            for batch, about in encoded:
                metadata = json.dumps(about).encode()
                writer.write_with_metadata(batch, metadata)
                self.total.bytes += batch.nbytes + len(metadata)
        self.total.checkpoints += 1
        self.total.elements += elements + sum(
            frame.header.count for queue in checkpoint.queues for frame in queue.frames
        )

    def encode(self, checkpoint: Checkpoint) -> tuple[Iterable[Encoded], int]:
        """What goes over the wire, and how many rows of state that are."""
        chain = self._pack(checkpoint)
        return encode_checkpoint(checkpoint, chain), chain_rows(chain)

    def _pack(self, checkpoint: Checkpoint) -> Chain:
        state = checkpoint.state
        assert state is None or not isinstance(state, int | str)
        handle: Handle = state  # type: ignore[assignment]
        base = checkpoint.base
        whole = base is None or base not in self._states or self._is_long()
        since = None if base is None else self._states.get(base)
        chain = self._workshop.pack(handle, since, whole)
        size = chain_bytes(chain)
        if whole:
            self.total.whole += 1
            self._whole_bytes, self._changed_bytes, self._changes = size, 0, 0
        else:
            self._changed_bytes += size
            self._changes += 1
        kept = {} if base is None or base not in self._states else {base: self._states[base]}
        newest = dict(sorted(self._states.items())[-2:])
        self._states = {**newest, **kept, checkpoint.number: handle}
        return chain

    def _is_long(self) -> bool:
        """Whether a whole state costs its receiver less than one more set of changes."""
        if self._receiver_merges:
            return False
        much = self._changed_bytes > max(_SMALL_BYTES, 2 * self._whole_bytes)
        return much or self._changes >= LONGEST_CHAIN
