"""Reading an output stream of a running deployment, with its corrections.

    with holdfast.Client.of("deployment.toml", "busy", name="screen") as client:
        for event in client:
            view.apply(event)

A client takes each stable tuple exactly once and in order, from whichever replica is best at
the moment, and is told of tentative tuples and of their corrections. It resumes where it
stopped if it says where that was: ``next_id``. Producers keep what the clients that the
deployment names have not acknowledged; a client acknowledges what it has committed.

A client that needs no order (``ordered=False``) gets each stable tuple once, the moment somebody
has it, as ``Unordered``, and nothing tentative, where the output has such results: those of
fragments that race, if no operator between the sources and the output needs more than one tuple at
a time. Other outputs it gets in order."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import NoReturn

import pyarrow as pa

from holdfast.blocks import Block
from holdfast.chosen import chosen
from holdfast.core import client as core
from holdfast.core.copy_view import InputView
from holdfast.core.effects import (
    DeliverBoundary,
    DeliverTuples,
    DeliverUndo,
    Effect,
    EndProcess,
    OfEntryPoints,
    OfReplicas,
    OfServing,
    Send,
    SetTimer,
)
from holdfast.core.events import Committed, Event, MembershipTold, MessageArrived
from holdfast.core.frame import Kind
from holdfast.core.messages import (
    HeartbeatReply,
    NotServed,
    SubscribeRefused,
)
from holdfast.core.records import Membership
from holdfast.core.settings import SECOND_US, Input, Timing
from holdfast.core.unordered import make_client
from holdfast.durable import Damaged
from holdfast.errors import HoldfastError, Removed
from holdfast.flight.links import Links
from holdfast.flight.peers import Peers
from holdfast.flight.refused import Refused
from holdfast.flight.roles import Role
from holdfast.flight.security import Security
from holdfast.frames import SEQ
from holdfast.loop import Loop
from holdfast.stream_events import Boundary as Boundary
from holdfast.stream_events import ClientEvent as ClientEvent
from holdfast.stream_events import Tuples as Tuples
from holdfast.stream_events import Undo as Undo
from holdfast.stream_events import Unordered as Unordered
from holdfast.stream_events import View as View

# A client that does not take its events stops reading beyond these.
_QUEUE_EVENTS = 10_000
_QUEUE_BYTES = 256 << 20
# How often it looks who takes part.
_LOOK_US = SECOND_US


class ClientError(HoldfastError):
    """The stream cannot be read: a wrong token, another version, no such stream, trimmed."""


class RetiredError(ClientError, Removed):
    """The client was retired: nothing is kept for its name any more."""


class Client:
    """Reads one stream."""

    def __init__(
        self,
        stream: str,
        producers: Mapping[str, str],
        *,
        name: str = "client",
        next_id: int = 0,
        security: Security | None = None,
        timing: Timing | None = None,
        auto_commit: bool = True,
        standing: bool = False,
        links: Links | None = None,
        role: Role = Role.READ,
        ordered: bool = True,
        lossy: bool = False,
        since: int = 0,
        named: bool = False,
        membership: Callable[[], Membership] | None = None,
    ) -> None:
        """
        stream       the output to read.
        producers    the processes that provide it, by name, and their Flight locations.
        name         who this is; a deployment keeps tuples for the clients it names.
        next_id      the first stable tuple wanted: where an earlier life got to.
        auto_commit  acknowledge an event when the next one is taken; otherwise ``commit``.
        standing     keep a feed open at every producer: for outputs of hybrid fragments.
        links        links to the producers, cut or long; whole and short if not given.
        role         what this is to the producers: a reader, or a node of the deployment.
        ordered      False: in no order, each stable tuple the moment it is there; only for outputs
                     that have such results. What an earlier life had beyond ``next_id`` comes
                     again.
        lossy        the output is delivered at most once: begin with what comes from now on.
        since        the tuple time, in microseconds, up to which an earlier life has the stream:
                     nothing tentative comes that is older, and, at most once, nothing at all.
        named        whether the deployment names it, and so keeps tuples for it.
        membership   who takes part, as far as this machine knows: whoever was cut off while all
                     its producers were replaced has nobody else to hear it from.
        """
        self.stream = stream
        self.name = name
        self.next_id = next_id
        self._committed = next_id
        self._named = named
        self._auto_commit = auto_commit
        # Each event with the id that stable tuples in order have reached by then.
        self._events: queue.SimpleQueue[tuple[ClientEvent | None, int]] = queue.SimpleQueue()
        self._reached = next_id
        self._queued_bytes = 0
        self._failure: BaseException | None = None
        self._closed = threading.Event()
        read = Input(stream, tuple(producers), standing, early=not ordered, lossy=lossy)
        settings = core.ClientSettings(name, read, next_id, timing or Timing(), since)
        self._driver = make_client(settings)
        self._ordered = ordered
        self._loop = Loop(name, self._driver, self._carry_out, self._fail)
        self._peers = Peers(
            name,
            producers,
            security or Security(),
            self._post,
            self._problem,
            self._may_read,
            links=links,
            role=role,
        )
        self._loop.start()
        self._told_epoch = 0
        if membership is not None:
            self._loop.call(lambda: self._look_at(membership))

    @classmethod
    def of(
        cls,
        deployment: str | os.PathLike[str],
        stream: str,
        *,
        name: str = "client",
        next_id: int = 0,
        auto_commit: bool = True,
        ordered: bool = True,
    ) -> Client:
        """A client of a deployment that was started on this machine.

        ``ordered=False``: each stable tuple the moment it is there, where the output has such
        results; other outputs come in order all the same.
        """
        from holdfast.plans.membership_file import MembershipFile
        from holdfast.plans.topology import reach

        found = reach(deployment)
        if stream not in found.topology.producers:
            known = sorted(found.topology.producers)
            raise ClientError(f"{deployment} has no stream {stream!r}; it has {known}")
        return cls(
            stream,
            found.book(*found.topology.producers[stream]),
            name=name,
            next_id=next_id,
            security=found.security,
            timing=found.topology.timing,
            auto_commit=auto_commit,
            standing=stream in found.topology.standing,
            links=Links(distances=found.deployment.distances.of(name)),
            ordered=ordered or stream not in found.topology.early,
            lossy=stream in found.topology.lossy,
            named=name in found.deployment.clients,
            membership=MembershipFile(found.deployment.data),
        )

    # -- reading ------------------------------------------------------------------------

    def read(self, timeout_s: float | None = None) -> ClientEvent | None:
        """The next event; None if none came in time, or the client was closed."""
        if self._auto_commit:
            self.commit()
        if self._failure is not None and self._events.empty():
            raise self._failure
        try:
            event, reached = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if event is None:
            if self._failure is not None:
                raise self._failure
            return None
        if isinstance(event, Tuples | Unordered):
            self._queued_bytes -= event.table.nbytes
        self.next_id = reached
        return event

    def __iter__(self) -> Iterator[ClientEvent]:
        """Events until the client is closed."""
        while not self._closed.is_set():
            event = self.read(timeout_s=1.0)
            if event is not None:
                yield event

    def commit(self, next_id: int | None = None) -> None:
        """What is below ``next_id`` (default: what was read) will not be asked for again."""
        reached = self.next_id if next_id is None else next_id
        if reached > self._committed:
            self._committed = reached
            self._loop.post(Committed(reached))

    @property
    def committed(self) -> int:
        return self._committed

    @property
    def following(self) -> str | None:
        """The process the stream comes from now."""
        return self._driver.follows()

    @property
    def input(self) -> InputView:
        """From whom it comes, how far, and how early everybody is who sends it."""
        return self._driver.view()

    @property
    def waiting(self) -> int:
        """How many events have come and were not yet read."""
        return self._events.qsize()

    @property
    def links(self) -> Links:
        """The links to the producers; cut one to see what happens."""
        return self._peers.links

    def close(self) -> None:
        """Stop reading."""
        self._closed.set()
        self._peers.close()
        self._loop.stop()
        self._put(None)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- the runtime of the driver ------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(to, message):
                self._peers.send(to, message)
            case SetTimer(at):
                self._loop.set_timer(at)
            case EndProcess(reason):
                self._fail(RetiredError(reason))
            case DeliverTuples():
                self._tuples(effect)
            case DeliverUndo(_, _, below_stime):
                self._put(Undo(below_stime))
            case DeliverBoundary(_, boundary):
                self._put(Boundary(boundary))
            case _:
                self._not_ordered(effect)

    def _not_ordered(self, effect: OfServing | OfEntryPoints | OfReplicas) -> NoReturn:
        raise AssertionError(f"a client does not order {effect}")

    def _tuples(self, effect: DeliverTuples) -> None:
        assert isinstance(effect.block, Block)
        header = effect.header
        batch = chosen(effect.block.batch().slice(effect.skip), effect.choice)
        table = pa.Table.from_batches([batch])
        if SEQ.name in table.column_names:  # of the network; to an application the id is the place
            table = table.drop_columns([SEQ.name])
        stable = header.kind is Kind.STABLE
        first_id = header.first_id + effect.skip
        if header.stime_min < effect.stime_from:
            stimes = table["stime"].cast(pa.int64()).to_numpy()
            newer = table.filter(pa.array(stimes >= effect.stime_from))
            # They come in the order of time: what is left out is in front.
            first_id += table.num_rows - newer.num_rows
            table = newer
        if stable:
            self._reached = header.next_id
        if table.num_rows:
            self._queued_bytes += table.nbytes
            tuples = Tuples(stable, first_id, table, effect.why)
            self._put(tuples if self._ordered else Unordered(table))

    def _put(self, event: ClientEvent | None) -> None:
        self._events.put((event, self._reached))

    def _look_at(self, membership: Callable[[], Membership]) -> None:
        """Now and then, in the loop's thread: see who takes part."""
        # What cannot be read now is read later; most is heard from the producers anyway.
        with suppress(OSError, Damaged):
            found = membership()
            if found.epoch > self._told_epoch:
                self._told_epoch = found.epoch
                self._loop.post(MembershipTold(found))
        self._loop.call_later(_LOOK_US, lambda: self._look_at(membership))

    def _post(self, event: Event) -> None:
        if isinstance(event, MessageArrived) and isinstance(event.message, SubscribeRefused):
            refusal = event.message
            if refusal.why is NotServed.REMOVED:
                self._fail(RetiredError(refusal.detail))
            elif self._driver.is_final(refusal):
                self._fail(ClientError(self._refused(event.sender, refusal)))
        if isinstance(event, MessageArrived) and isinstance(event.message, HeartbeatReply):
            served = [report.stream for report in event.message.reports]
            if self.stream not in served:
                self._fail(ClientError(f"{event.sender} serves no stream {self.stream!r}"))
        self._loop.post(event)

    def _refused(self, sender: str, refusal: SubscribeRefused) -> str:
        text = f"{self.stream} from {sender}: {refusal.text}"
        if refusal.why not in (NotServed.TRIMMED, NotServed.NOT_HERE):
            return text
        if self._named:
            return (
                f"{text}. An earlier life of {self.name!r} has acknowledged what is below: keep "
                f"the client's next_id with what you make of its tuples, and begin with that, "
                f"Client.of(..., next_id=...); or acknowledge later, with auto_commit=False and "
                f"commit()"
            )
        return (
            f"{text}. Tuples are kept until every client has them that the deployment names: begin "
            f"with next_id at what is there, and name {self.name!r} in the deployment's file if "
            f"nothing may be missed while it is away"
        )

    def _problem(self, peer: str, text: str, why: Refused | None) -> None:
        if why is not None:
            self._fail(ClientError(f"{self.stream} from {peer}: {text}"))

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self._put(None)

    def _may_read(self) -> bool:
        return self._events.qsize() < _QUEUE_EVENTS and self._queued_bytes < _QUEUE_BYTES
