"""An entry point: the driver of ``core.entry``, its log, its ledger and its sources.

    offered ──ledger, log──▶ durable ──▶ published to subscribers, acknowledged to the producer

Tuple ids are given when tuples are offered and stand once they are in the log. If the disk
fails, the same tuples are offered again under the same ids until it works.

Tuples take the time they are handed to the driver, and the boundary is the present. The boundary
of a source whose tuples bring their own time is the newest time seen, less the lateness it allows.
When such a source has ended, nothing of it can be late any more and its boundary, too, is the
present: windows over what it sent close, and it holds up nobody.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.flight as flight

from holdfast.blocks import Block
from holdfast.connect.push_source import PushSource
from holdfast.connect.source import Source
from holdfast.core.effects import (
    AcceptTuples,
    Append,
    Effect,
    EndProcess,
    KeepConsumers,
    OfClients,
    OfReplicas,
    RefuseBatch,
    Send,
    SetTimer,
    TrimLog,
)
from holdfast.core.entry import EntryPoint, EntrySettings
from holdfast.core.events import SourceBatch, SourceReached
from holdfast.core.fence import Fenced
from holdfast.core.producers import (
    BatchVerdict,
    ProducerPlace,
    Producers,
    SequenceGap,
    TooManyNames,
)
from holdfast.core.source_time import FAR
from holdfast.errors import HoldfastError
from holdfast.flight.refused import Refused, refused
from holdfast.flight.server import ANSWER_SECONDS, Control, PutBatch
from holdfast.frames import SEQ
from holdfast.kept.consumers import read_consumers
from holdfast.kept.ledger import Ledger, LedgerLine
from holdfast.kept.stream_store import StreamStore
from holdfast.log import Durability, LogOptions
from holdfast.nodes.hosted import Place
from holdfast.nodes.intake import PENDING_BYTES, Intake, Offer, stamped
from holdfast.nodes.node import Node
from holdfast.operators import Declaration

LOG_OPTIONS = LogOptions(
    durability=Durability.ALWAYS,
    segment_bytes=16 << 20,
    preallocate_bytes=1 << 20,
    direct_bytes=1 << 20,
)
_IDLE_SECONDS = 0.01
# How long a source may take to end what it reads when the node stops.
_READER_SECONDS = 5.0
# Who did not get to look for so long was not running, rather than busy.
_STOOD_STILL_US = 1_000_000
# Clocks differ by less; a source that is further ahead is told of.
_AHEAD_US = 1_000_000


class EntryNode(Node):
    """The entry point of one source stream."""

    kind = "entry"

    def __init__(
        self,
        settings: EntrySettings,
        declared: Declaration,
        schema: pa.Schema,
        source: Source | None,
        bucket_us: int,
        directory: Path,
        place: Place,
        on_fatal: Callable[[BaseException], None],
        keep: bool = False,
    ) -> None:
        """``schema`` is the engine's for the source; without ``source``, producers push.

        ``keep``: never trim the log.
        """
        stream = settings.stream
        served = pa.schema([field for field in schema if field.name != SEQ.name])
        super().__init__(settings.address, place, {stream: served}, directory, on_fatal)
        settings = replace(settings, own_time=declared.stime is not None)
        self.stream = stream
        self._source = source or PushSource(0)
        self._keep = keep
        self.store = StreamStore(
            directory / "streams",
            {stream: served},
            LOG_OPTIONS,
            self._post,
            # In the disk's thread, before the log: the ledger.
            before_append=lambda append: self._ledger.add(self._lines),
            on_problem=self.problems.set,
        )
        logged = self.store.logged(stream, complete=True)
        self._settings = settings
        self.entry = EntryPoint(settings, logged, read_consumers(directory))
        found = self.entry.view()
        self._ledger = Ledger(directory / "ledger.jsonl", found.next_id)
        self._bounded = settings.bound is not None
        self._intake = Intake(
            declared,
            served,
            self._source,
            bucket_us,
            directory,
            self._ledger.standing,
            self._hand_over,
            self.problems.set,
            self._reached,
            place.clock,
            settings.lane_idle_us,
        )
        self._intake.forbid_before(found.boundary)
        if not settings.own_time:
            place.clock.at_least(found.boundary)
        self._pending: OrderedDict[int, Offer] = OrderedDict()
        # The numbers of the offers that are in the append under way, and their lines.
        self._appending: list[int] = []
        self._lines: list[LedgerLine] = []
        self._pending_bytes = 0
        self._room = threading.Condition()
        self._retrying = False
        self._stopping = False
        self._ahead: str | None = None
        self._told = -FAR
        self._time_looked_at = 0
        self._producers = Producers(self._ledger.standing.producers)
        self._taking = threading.Lock()
        # (producer, sequence) -> the offer that is not yet durable
        self._under_way: dict[tuple[str, int], Offer] = {}
        self.loop = self.make_loop(self.entry)
        self._reader = threading.Thread(target=self._read, name=f"{stream} source", daemon=True)

    def start(self) -> None:
        super().start()
        if not self._source.is_pushed:
            self._reader.start()
        self.loop.call(self._look_at_time)

    def stop(self) -> None:
        self._stopping = True
        super().stop()
        for offer in list(self._under_way.values()):
            offer.durable.cancel()  # it is on no disk by now, and calls wait for it
        if self._reader.is_alive():
            self._reader.join(_READER_SECONDS)
        self._intake.close()
        self._ledger.close()

    def status(self) -> dict[str, Any]:
        view, inlet = self.entry.view(), self._intake.inlet
        return {
            **super().status(),
            "state": view.state.value,
            "next_id": view.next_id,
            "boundary": view.boundary,
            "epoch": view.epoch,
            "pending": len(self._pending),
            "dead_letters": inlet.dead,
            "late": inlet.late,
            "ahead": inlet.ahead,
            "idle": inlet.idle,
            "ended": inlet.ended,
            "warnings": self._warnings(),
            "trimmed_below": view.first_id,
        }

    def _warnings(self) -> list[str]:
        """What whoever looks should know."""
        found = [self._ahead] if self._ahead is not None else []
        inlet = self._intake.inlet
        if inlet.dead:
            found.append(
                f"{inlet.dead:,} dead letters, {inlet.late:,} of them late and {inlet.ahead:,} "
                f"ahead of the clock"
            )
        return found

    def controls(self) -> dict[str, Control]:
        return {**super().controls(), "producer": self._open_producer}

    # -- offers -------------------------------------------------------------------------

    def _hand_over(self, offer: Offer) -> None:
        """In the thread of a source or a producer; waits for room."""
        with self._room:
            while not self._stopping and (
                self._pending_bytes > PENDING_BYTES or self.entry.view().full
            ):
                self._room.wait(0.5)
            self._pending_bytes += offer.batch.nbytes
        self.loop.call(lambda: self._offer(offer))

    def look(self) -> None:
        super().look()
        view = self.entry.view()
        self.say_beyond(view.beyond, view.full, view.lapsed)

    def _offer(self, offer: Offer) -> None:
        self._pending[offer.number] = offer
        self.metrics.tuples_in.inc(offer.line.count)
        if not self._retrying:
            self._give(offer)

    def _give(self, offer: Offer) -> None:
        line, batch, oldest, newest = offer.line, offer.batch, offer.stime_min, offer.stime_max
        if self._intake.takes_arrival_time:
            # A boundary that is due promises the present: it must not come after the stamp.
            self.loop.fire_due()
            oldest = newest = max(self.loop.now(), self.entry.view().boundary)
            batch = stamped(batch, newest, self.schemas[self.stream])
        block = Block(batch)
        self.loop.handle(
            SourceBatch(line.first_id, line.count, oldest, newest, block, offer.boundary)
        )

    def _note_lines(self, append: Append) -> None:
        """What the ledger needs before the log; there is never more than one append under way.

        A batch of dead letters only has no tuples in the log, but a line of its own.
        """
        end_id = append.frames[0][1][-1].header.first_id
        offers = [offer for offer in self._pending.values() if offer.end_id <= end_id]
        self._appending = [offer.number for offer in offers]
        self._lines = [offer.line for offer in offers]

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case Append():
                self._note_lines(effect)
                self.carry_out_common(effect)
            case AcceptTuples(next_id):
                self._accepted(next_id)
            case TrimLog() if self._keep:
                pass
            case RefuseBatch(_, reason):
                self._told = -FAR  # what was promised beyond the log is to be promised again
                if not self._retrying:
                    self.journal.write_once("offering again", "append", reason=reason)
                    self._retrying = True
                    self.loop.call_later(self._settings.retry_us, self._offer_again)
            case Send() | SetTimer() | EndProcess() | TrimLog() | KeepConsumers():
                self.carry_out_common(effect)
            case _:
                self._not_ordered(effect)

    def _not_ordered(self, effect: OfReplicas | OfClients) -> NoReturn:
        raise AssertionError(f"an entry point does not order {effect}")

    def _accepted(self, next_id: int) -> None:
        freed = 0
        for number in self._appending:
            offer = self._pending.pop(number)
            freed += offer.batch.nbytes
            self._ledger.settled(offer.line)
            self._intake.inlet.checkpointed(offer.line.save)
            self.metrics.tuples_out.inc(offer.line.count)
            offer.durable.set_result(next_id)
        self._appending = []
        with self._room:
            self._pending_bytes -= freed
            self._room.notify_all()

    def _offer_again(self) -> None:
        self._retrying = False
        for offer in list(self._pending.values()):
            if not self._retrying:
                self._give(offer)

    def _read(self) -> None:
        """The thread that reads the source."""
        try:
            inlet = self._intake.inlet
            while not (self._stopping or inlet.ended):
                read = self._intake.read()
                self.problems.set("source", inlet.problem)
                if read is None:
                    time.sleep(_IDLE_SECONDS)
            if inlet.ended:
                self.journal.write("source ended", tuples=inlet.tuples)
                self.loop.call(self._go_on_with_the_clock)
        except HoldfastError as error:
            self.problems.tell("source", f"the source cannot be read any further: {error}")

    # -- the source's own time ----------------------------------------------------------

    def _look_at_time(self) -> None:
        """Now and then: is somebody idle, is the source ahead of the clock?"""
        interval_us = self._settings.boundary_interval_us
        now = self.loop.now()
        passed, self._time_looked_at = now - (self._time_looked_at or now), now
        if passed > interval_us + _STOOD_STILL_US or self._retrying:
            self._intake.excuse(passed)  # this process stood still, or cannot write
        elif self._source.is_pushed and not self._intake.look_for_idle():
            self._intake.excuse(passed)
        self._note_ahead(self._intake.ahead_us)
        self.metrics.dead_letters(self._intake.inlet.dead)
        self.loop.call_later(interval_us, self._look_at_time)

    def _note_ahead(self, ahead_us: int) -> None:
        """A source whose times lie ahead of the clock makes everything wait for it: say so."""
        if ahead_us < _AHEAD_US:
            self._ahead = None
            return
        text = f"its newest tuple is {ahead_us / 1e6:,.1f} s ahead of this machine's clock"
        if self._ahead is None:
            self.journal.write("source ahead of the clock", level="warning", problem=text)
        self._ahead = text

    def _reached(self, boundary: int) -> None:
        """The source is so far without a new tuple; after all that was offered before."""
        if boundary > self._told:
            self._told = boundary
            self.loop.call(lambda: self._promise(boundary))

    def _promise(self, boundary: int) -> None:
        if self._pending:
            self._told = -FAR  # they come first; it is told again
        else:
            self.loop.handle(SourceReached(boundary))

    def _go_on_with_the_clock(self) -> None:
        """The source has ended; once all of it is taken, time goes on without it."""
        if not self._intake.takes_arrival_time:
            if not self._pending:
                self.loop.handle(SourceReached(self.loop.now()))
            interval_us = self._settings.boundary_interval_us
            self.loop.call_later(interval_us, self._go_on_with_the_clock)

    # -- producers ----------------------------------------------------------------------

    def _open_producer(self, options: dict[str, Any]) -> dict[str, Any]:
        """A producer opens its name: its epoch, once that is durable, and where it goes on."""
        self._refuse_producers_of_a_source()
        name = str(options["producer"])
        with self._taking:
            try:
                place = self._producers.open(name)
            except TooManyNames as error:
                raise refused(str(error)) from None
            offer = self._intake.opened(name, place)
        try:
            offer.durable.result(ANSWER_SECONDS)
        except FutureTimeout:
            raise flight.FlightTimedOutError(
                f"{self.name} cannot write down that {name!r} was opened"
            ) from None
        self.journal.write("producer opened", producer=name, epoch=place.epoch)
        schema = self.schemas[self.stream]
        columns = pa.schema([field for field in schema if field.name not in ("stime", "tmax")])
        return {
            "epoch": place.epoch,
            "sequence": place.sequence,
            "tuples": place.tuples,
            "next_id": self.entry.view().next_id,
            "required": list(self._intake.inlet.required),
            "own_time": self._settings.own_time,
            "schema": columns.serialize().to_pybytes().hex(),
        }

    def put(
        self, sender: str, stream: str, options: dict[str, Any], batches: Iterator[PutBatch]
    ) -> None:
        self._refuse_producers_of_a_source()
        producer, epoch = str(options["producer"]), int(options.get("epoch", 0))
        waiting: SimpleQueue[tuple[PutBatch, Future[int]] | None] = SimpleQueue()
        failed: list[BaseException] = []

        def acknowledge() -> None:
            """Each batch, in order, once it is durable."""
            while (item := waiting.get()) is not None:
                put, durable = item
                try:
                    next_id = durable.result()
                    put.acknowledge({"sequence": put.options["sequence"], "next_id": next_id})
                except BaseException as error:
                    failed.append(error)
                    return

        thread = threading.Thread(target=acknowledge, name=f"acks to {sender}", daemon=True)
        thread.start()
        try:
            for batch in batches:
                waiting.put((batch, self._take(producer, epoch, batch)))
                if failed:
                    break
        finally:
            waiting.put(None)
            with contextlib.suppress(RuntimeError):
                thread.join()

    def _refuse_producers_of_a_source(self) -> None:
        if not self._source.is_pushed:
            raise refused(
                f"{self.name} reads its tuples from {self._source}; it takes none from producers"
            )

    def _take(self, producer: str, epoch: int, put: PutBatch) -> Future[int]:
        sequence, tuples = int(put.options["sequence"]), int(put.options["tuples"])
        if self._stopping:
            raise flight.FlightUnavailableError(f"{self.name} is stopping")
        with self._taking:
            try:
                if self._producers.judge(producer, epoch, sequence) is BatchVerdict.REPEAT:
                    return self._taken(producer, sequence)
                place = ProducerPlace(epoch, sequence, tuples)
                table, promise = pa.Table.from_batches([put.batch]), put.options.get("promise")
                offer = self._intake.push(
                    table, producer, place, None if promise is None else int(promise)
                )
            except Fenced as error:
                raise refused(str(error), Refused.FENCED) from None
            except (SequenceGap, HoldfastError) as error:
                raise refused(str(error)) from None
            self._producers.took(producer, sequence, tuples)
            key = (producer, sequence)
            self._under_way[key] = offer
            offer.durable.add_done_callback(lambda done: self._under_way.pop(key, None))
            return offer.durable

    def _taken(self, producer: str, sequence: int) -> Future[int]:
        """When a batch that was taken before is durable."""
        known = self._under_way.get((producer, sequence))
        if known is not None:
            return known.durable
        durable: Future[int] = Future()
        durable.set_result(self.entry.view().next_id)
        return durable

    def after(self) -> None:
        view = self.entry.view()
        self.metrics.in_state(view.state.value)
        self.metrics.boundary.set(max(0, view.boundary) / 1e6)
