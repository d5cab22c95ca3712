"""A node: one driver with its loop, its server and its peers, ready to run in any process.

Entry points and replicas are nodes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import pyarrow as pa

from holdfast.blocks import Block
from holdfast.core.admission import Admission
from holdfast.core.effects import (
    Append,
    Effect,
    EndProcess,
    KeepConsumers,
    OfAll,
    OfServing,
    Send,
    SetTimer,
    TrimLog,
)
from holdfast.core.events import (
    Appended,
    AppendFailed,
    ConsumersNotKept,
    Event,
    KeptMeasured,
    MembershipTold,
    MessageArrived,
)
from holdfast.core.machine import PeerError
from holdfast.core.messages import (
    CopyReply,
    FeedFrames,
    HeartbeatReply,
    Message,
    NotServed,
    SubscribeRefused,
    Unsubscribe,
)
from holdfast.core.progress import Work
from holdfast.durable import Damaged
from holdfast.errors import HoldfastError, Removed
from holdfast.flight.peers import Peers
from holdfast.flight.refused import Refused
from holdfast.flight.server import Control
from holdfast.kept.consumers import keep_consumers
from holdfast.loop import Driver, Loop
from holdfast.nodes.hosted import Hosted, Place
from holdfast.nodes.links import if_allowed
from holdfast.nodes.standstill import Watched

if TYPE_CHECKING:
    from holdfast.kept.stream_store import StreamStore

_LOOK_US = 500_000


class GaveUp(HoldfastError):
    """The driver has work that this process cannot get done."""


class Node(Hosted):
    """What entry points and replicas have in common."""

    # What its driver is told last when it stops.
    last_event: Event | None = None
    loop: Loop
    store: StreamStore

    def __init__(
        self,
        name: str,
        place: Place,
        schemas: Mapping[str, pa.Schema],
        directory: Path,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """``schemas`` are those of the streams that it serves."""
        watched = (
            Watched("loop", "the loop of this node", lambda: (self._looks, self.loop.events)),
            # Where appends are all of the work, the driver gives up (core/progress.py).
            Watched(
                "standing disk",
                f"what is written below {directory}",
                lambda: self.store.turn,
                ends=False,
            ),
        )
        super().__init__(name, place, directory, on_fatal, watched)
        self.schemas = dict(schemas)
        self.admission = Admission(name)
        self._looks = 0
        self._state = ""
        self._told_epoch = 0
        # Whether there are bounds on what is kept.
        self._bounded = False
        # (stream, consumer) of those for whom nothing is kept for now, as was said.
        self._lapsed: frozenset[tuple[str, str]] = frozenset()
        # Why producers refuse a stream, by their name.
        self._refusals: dict[str, str] = {}
        self.peers = Peers(
            name,
            place.book,
            place.security,
            self._post,
            self._peer_problem,
            on_block=self.took,
            links=self.links,
        )

    def listen_to(self, partners: tuple[str, ...], copies: tuple[str, ...] = ()) -> None:
        """Who speaks to this node as another replica, or another copy, of its fragment."""
        self.admission = Admission(self.name, partners, copies)

    def make_loop(self, driver: Driver) -> Loop:
        self._driver = driver
        return Loop(
            self.name,
            self,
            self.carry_out,
            self._on_fatal,
            lambda error: self._peer_error(error),
            self.place.clock,
        )

    def handle(self, event: Event, now: int) -> list[Effect]:
        """What the driver says, with a look at what goes in and at what came of it."""
        self.before(event)
        effects = self._driver.handle(event, now)
        self.after()
        return effects

    def before(self, event: Event) -> None:
        """The driver is about to be told."""

    def after(self) -> None:
        """The driver was told; what it ordered is carried out next."""

    def start(self) -> None:
        self.listen()
        self.store.start()
        self.loop.start()
        self.loop.call(self._look_again)
        self.journal.write("started", port=self.port)

    def _look_again(self) -> None:
        self._looks += 1
        self.look()
        self.loop.call_later(_LOOK_US, self._look_again)

    def look(self) -> None:
        """Twice a second, in the loop's thread: see what is wrong, and what no longer is."""
        self._look_at_membership()
        if self._bounded:
            sizes, tentative = self.kept_sizes().items(), self.tentative_sizes().items()
            # Not posted: what it makes the driver let go of is said by this look, not by the next.
            self.loop.handle(KeptMeasured(tuple(sizes), tuple(tentative)))

    def kept_sizes(self) -> dict[str, int]:
        """How many bytes are kept of the tuples that are for good, by stream: those of its log."""
        return dict(self.store.sizes)

    def tentative_sizes(self) -> dict[str, int]:
        """How many bytes of tentative tuples are kept, where there are any, by stream."""
        return {}

    def _look_at_membership(self) -> None:
        try:
            found = self.place.membership()
        except (OSError, Damaged) as error:
            self.problems.tell("membership", f"who takes part cannot be read: {error}")
            return
        self.problems.over("membership")
        if found.epoch > self._told_epoch:
            self._told_epoch = found.epoch
            self.loop.post(MembershipTold(found))

    def say_beyond(self, beyond: str, full: str, lapsed: frozenset[tuple[str, str]]) -> None:
        """Say what is kept, or no longer kept, for those who are away, and who waits for that."""
        # Each by itself: a problem is told when it begins, however many it comes to be about.
        for stream, name in sorted(lapsed - self._lapsed):
            self.journal.write("not kept any more", level="warning", stream=stream, consumer=name)
        self._lapsed = lapsed
        self.problems.set("bounds", beyond or None)
        self.problems.set("full", full or None)

    def work(self) -> Work:
        """The work of the driver, where it watches it."""
        return Work()

    def stop(self) -> None:
        """Stop serving, finish what is being written, close the logs."""
        self.listen_no_more()
        self.peers.close()
        self.loop.stop(self.last_event)
        self.store.close()
        self.journal.write("stopped")

    def controls(self) -> dict[str, Control]:
        clock = if_allowed(self.place.chaos, self._set_clock)
        return {**super().controls(), "clock": clock}

    def _set_clock(self, options: dict[str, Any]) -> dict[str, Any]:
        """As if the machine's clock had been set."""
        self.place.clock.step(int(options.get("step_us", 0)))
        return {"off_us": self.place.clock.off_us}

    def status(self) -> dict[str, Any]:
        return {
            **super().status(),
            "events": self.loop.events,
            "waiting": self.loop.waiting,
            "clock_off_s": round(self.place.clock.off_us / 1e6, 1),
            "feeds": len(self.server.feeds) if self.server is not None else 0,
            "log_bytes": sum(self.store.sizes.values()),
            "tuple_bytes": self.metrics.tuple_bytes(),
            "refused": dict(self._refusals),
            "stalled": self.work().stalled,
            "refused_calls": 0 if self.server is None else self.server.refusals.total,
        }

    # -- what comes in ------------------------------------------------------------------

    def receive(self, sender: str, message: Message) -> Future[Message]:
        """A message from the server's threads."""
        answer: Future[Message] = Future()
        refusal = self.admission.refusal(sender, message)
        if refusal is not None:
            answer.set_exception(PeerError(refusal))
            self._peer_error(PeerError(refusal))
            return answer
        self.loop.post(MessageArrived(sender, message), answer)
        return answer

    def took(self, block: Block) -> None:
        """A block of an input came, in the thread that reads it."""

    # -- what goes out ------------------------------------------------------------------

    @abstractmethod
    def carry_out(self, effect: Effect) -> None:
        """Each kind of node knows its own orders, and calls ``carry_out_common`` for the rest."""

    def carry_out_common(self, effect: OfAll | OfServing) -> None:
        """The orders that all nodes get."""
        match effect:
            case Send(to, message):
                self._send(to, message)
            case SetTimer(at):
                self.loop.set_timer(at)
            case Append() | TrimLog():
                self.store.put(effect)
            case KeepConsumers(record):
                self.store.call(lambda: self._post(keep_consumers(self._directory, record)))
            case EndProcess(reason, lasting):
                self._on_fatal(Removed(reason) if lasting else GaveUp(reason))
            case _:
                assert_never(effect)

    def _send(self, to: str, message: Message) -> None:
        match message:
            case HeartbeatReply() | CopyReply():
                answer = self.loop.answer
                if answer is not None and not answer.done():
                    answer.set_result(message)
            case FeedFrames() | SubscribeRefused():
                assert self.server is not None
                if isinstance(message, FeedFrames):
                    self.metrics.frames_sent.inc(len(message.frames))
                if not self.server.feeds.deliver(to, message):
                    # The driver goes on feeding nobody until it is told.
                    self.loop.post(MessageArrived(to, Unsubscribe(message.feed)))
            case _:
                self.peers.send(to, message)

    def _post(self, event: Event) -> None:
        if isinstance(event, MessageArrived):
            self._note_refusal(event.sender, event.message)
        elif isinstance(event, Appended):
            self.problems.over("disk")
        elif isinstance(event, AppendFailed | ConsumersNotKept):
            self.problems.tell("disk", f"cannot write: {event.reason}. It is tried again")
        self.loop.post(event)

    def _note_refusal(self, peer: str, message: Message) -> None:
        """A producer that has trimmed what is needed here will refuse it for ever: say so."""
        if isinstance(message, FeedFrames):
            self._refusals.pop(peer, None)
        if not isinstance(message, SubscribeRefused):
            return
        reason = message.text
        if message.why is NotServed.TRIMMED:
            reason = (
                f"{peer} has trimmed its log {message.detail}: this node lacks tuples that it once "
                f"acknowledged, so its directory is lost or too old. Another replica of the "
                f"fragment helps it; without one, put back a newer copy of the directory, or "
                f"start the deployment on a new data directory"
            )
        if self._refusals.get(peer) != reason:
            self._refusals[peer] = reason
            level = "error" if message.why.is_lasting else "warning"
            self.journal.write("refused", level=level, peer=peer, reason=reason)

    def in_state(self, state: str) -> None:
        """Say so when the driver's state changes."""
        if state != self._state:
            self._state = state
            self.metrics.in_state(state)
            self.journal.write("state", state=state)

    def _peer_problem(self, peer: str, text: str, why: Refused | None = None) -> None:
        self.journal.write("peer problem", level="warning", peer=peer, problem=text)

    def _peer_error(self, error: PeerError) -> None:
        problem = str(error)
        self.journal.write_once(
            "peer broke the protocol", problem[:200], level="error", problem=problem
        )
