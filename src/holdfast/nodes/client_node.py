"""A client as a process of its own: an output stream into a sink, exactly once.

What the sink has and where the stream goes on are one file, written after the sink has made its
tuples durable; only then are they acknowledged. A file sink cuts off what a crash left after
that; an upsert writes it again under the same id. A sink that fails is tried again until it works
(lasting_writer.py); nothing more is read meanwhile. Tentative tuples, for sinks that take them, are
handed on as they come.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.client import Client
from holdfast.connect.sink import Sink
from holdfast.core.frame import Why
from holdfast.core.settings import Timing
from holdfast.durable import read_document, write_document
from holdfast.flight.roles import Role
from holdfast.frames import SYSTEM_COLUMNS, numbered
from holdfast.nodes.hosted import Hosted, Place
from holdfast.nodes.lasting_writer import LastingWriter
from holdfast.nodes.replica_status import inputs_status
from holdfast.nodes.standstill import Watched
from holdfast.stream_events import Boundary, ClientEvent, Tuples, Undo
from holdfast.why_words import plain_why

# How soon a sink that fails is tried again.
AGAIN_SECONDS = 0.2


class ClientNode(Hosted):
    """One client with a sink; its server has nothing but control."""

    kind = "client"

    def __init__(
        self,
        name: str,
        output: str,
        schema: pa.Schema,
        sink: Sink,
        directory: Path,
        producers: Mapping[str, str],
        place: Place,
        timing: Timing,
        on_fatal: Callable[[BaseException], None],
        standing: bool = False,
        lossy: bool = False,
    ) -> None:
        # It may wait for somebody else's database: a new process would not do better.
        watched = Watched("standing sink", f"the sink {sink}", lambda: self._turns, ends=False)
        super().__init__(name, place, directory, on_fatal, (watched,))
        self._output = output
        self._path = directory / "position.json"
        saved = _found_or_begun(self._path)
        # Sinks that keep the last tuple id themselves know by it whose it is.
        self._writer_id = str(saved.get("writer", ""))
        sink = sink.known_as(self._writer_id, directory / "sink.json")
        self._flush_seconds = sink.flush_seconds
        self._own = pa.schema([field for field in schema if field.name not in SYSTEM_COLUMNS])
        self._writer = LastingWriter(
            lambda position: sink.open(output, self._own, position),
            saved.get("position"),
            lambda text: self.problems.set("sink", text),
        )
        self._takes_tentative = sink.takes_tentative
        self._stopping = threading.Event()
        self._client = Client(
            output,
            producers,
            name=name,
            next_id=int(saved["next_id"]),
            security=place.security,
            timing=timing,
            auto_commit=False,
            standing=standing,
            links=self.links,
            role=Role.REPLICATE,
            lossy=lossy,
            since=int(saved.get("since", saved.get("boundary", 0))),
            membership=place.membership,
        )
        self._boundary = 0
        # Up to which time the sink has the stream: nothing tentative is shown of it again.
        self._since = 0
        # Up to which tuple time something stands tentatively, and why; 0 for nothing.
        self._tentative_until = 0
        self._why: Why | None = None
        self._thread = threading.Thread(target=self._run, name=f"{name} sink", daemon=True)
        self._turns = 0

    def start(self) -> None:
        self.listen()
        self._thread.start()
        self.journal.write("started", next_id=self._client.next_id)

    def stop(self) -> None:
        self._stopping.set()
        self.listen_no_more()
        self._thread.join(10.0)
        self._client.close()
        self._writer.close()
        self.journal.write("stopped", next_id=self._client.next_id)

    def _run(self) -> None:
        try:
            due = due_if_behind = time.monotonic() + self._flush_seconds
            saved = True
            while not self._stopping.is_set():
                event = None
                self._turns += 1
                if self._writer.fails or not saved:
                    self._stopping.wait(AGAIN_SECONDS)
                else:
                    event = self._client.read(timeout_s=self._patience(due))
                if event is not None:
                    self._take(event)
                now = time.monotonic()
                if self._can_flush(saved) and now >= (
                    due_if_behind if self._client.waiting else due
                ):
                    saved = self._flush()
                    # What a flush takes does not add to how long tuples wait; but who is behind
                    # takes more of them before the next, which costs much the same.
                    due = now + self._flush_seconds
                    due_if_behind = time.monotonic() + self._flush_seconds
            if self._can_flush(saved):
                self._flush()
        except BaseException as error:
            self._on_fatal(error)

    def _can_flush(self, saved: bool) -> bool:
        """Whether something waits to be made durable, or to be noted that it is."""
        return (self._writer.waits and self._writer.ready) or not saved

    def _patience(self, due: float) -> float:
        """How long to wait for more: with tuples that wait themselves, until they are due."""
        longest = min(0.1, self._flush_seconds)
        if not (self._writer.waits and self._writer.ready):
            return longest
        return max(0.0, min(longest, due - time.monotonic()))

    def _take(self, event: ClientEvent) -> None:
        """Note an event, and hand on to the sink what it takes."""
        match event:
            case Tuples(True, first_id, table):
                self._writer.write(numbered(first_id, table, self._own))
                # They come in the order of time.
                self._since = table["stime"][-1].cast(pa.int64()).as_py() + 1
                self.metrics.tuples_in.inc(table.num_rows)
                return
            case Tuples(False, _, table, why):
                newest = pc.max(table["stime"].cast(pa.int64())).as_py()
                self._tentative_until, self._why = newest + 1, why
                if self._takes_tentative:
                    # Their ids are not theirs yet.
                    rows = table.select(["stime", *self._own.names])
                    self._writer.write_tentative(rows, why)
            case Undo(below_stime):
                if below_stime >= self._tentative_until:
                    self._tentative_until, self._why = 0, None
                if self._takes_tentative:
                    self._writer.undo(below_stime)
            case Boundary(stime):
                self._boundary = stime
                self._since = max(self._since, stime)
                self.metrics.boundary.set(stime / 1e6)
                if self._takes_tentative:
                    self._writer.boundary(stime)
                return
        self.metrics.rests_on(self._output, self._why)

    def status(self) -> dict[str, Any]:
        return {
            **super().status(),
            "state": "tentative" if self._tentative_until else "stable",
            "tentative": {} if self._why is None else {self._output: plain_why(self._why)},
            "from": self._client.following,
            "inputs": inputs_status([self._client.input]),
            "next_id": self._client.next_id,
            "committed": self._client.committed,
            "boundary": self._boundary,
            "waiting": self._client.waiting,
        }

    def health(self) -> list[str]:
        alive = self._thread.is_alive() or self._stopping.is_set()
        late = [] if alive else ["nobody writes into the sink any more"]
        return late + super().health()

    def _flush(self) -> bool:
        """Whether it could be done; it is tried again."""
        # 1: the sink
        position = self._writer.flush()
        if position is None:
            return False
        # 2: where it and the stream go on
        saved = {
            "next_id": self._client.next_id,
            "position": position,
            "writer": self._writer_id,
            "since": self._since,
        }
        try:
            write_document(self._path, saved)
        except OSError as error:
            self.problems.tell("disk", f"cannot write: {error}. It is tried again")
            return False
        self.problems.over("disk")
        # 3: the producers may forget it
        self._client.commit()
        return True


def _found_or_begun(path: Path) -> dict[str, Any]:
    """Where an earlier life of this client was; or its beginning, written down."""
    if path.exists():
        return read_document(path)
    begun: dict[str, Any] = {"next_id": 0, "position": None, "writer": uuid.uuid4().hex}
    write_document(path, begun)
    return begun
