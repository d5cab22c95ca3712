"""The serving side of a process: its streams, their feeds, and answers to heartbeats.

Replicas and entry points serve in the same way; this is what they share.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.acknowledgements import NOTHING_NEEDED
from holdfast.core.bounds import BoundWatch
from holdfast.core.effects import Effect, Send
from holdfast.core.events import KeptMeasured
from holdfast.core.membership import Consumers, told_to_go
from holdfast.core.messages import (
    HeartbeatReply,
    HeartbeatRequest,
    Message,
    NotServed,
    StreamReport,
    StreamState,
    Subscribe,
    SubscribeRefused,
    Unsubscribe,
)
from holdfast.core.records import Membership
from holdfast.core.serving import ServedStream


class Provider:
    """The streams of one process, for whoever subscribes."""

    def __init__(
        self,
        streams: dict[str, ServedStream],
        state_of: Callable[[str], StreamState],
        consumers: Consumers | None = None,
        watch: BoundWatch | None = None,
    ) -> None:
        self.streams = streams
        self.watch = watch or BoundWatch({})
        self.consumers = consumers or Consumers()
        self._state_of = state_of

    def handle(self, sender: str, message: Message, now: int) -> list[Effect]:
        match message:
            case HeartbeatRequest():
                return self._heartbeat(sender, message, now)
            case Subscribe(stream, feed):
                if stream not in self.streams:
                    return [Send(sender, SubscribeRefused(feed, NotServed.UNKNOWN, stream))]
                gone = told_to_go(sender, self.consumers.membership)
                if gone is not None:
                    return [Send(sender, SubscribeRefused(feed, NotServed.REMOVED, gone))]
                return self.streams[stream].subscribe(sender, message)
            case Unsubscribe(feed):
                for served in self.streams.values():
                    served.unsubscribe(sender, feed)
        return []

    def _heartbeat(self, sender: str, request: HeartbeatRequest, now: int) -> list[Effect]:
        effects = self._meet(sender, request.incarnation)
        if self.consumers.counts(sender, request.incarnation):
            # Who holds what comes until it has joined acknowledges nothing.
            self.watch.heard(sender, now, joins=not request.acks)
        acks = request.acks if self._counts(sender, request) else ()
        for stream, first_needed in acks:
            if stream in self.streams:
                served = self.streams[stream]
                needed = served.next_id if first_needed == NOTHING_NEEDED else first_needed
                effects += served.acknowledge(sender, needed, now)
        reports = []
        feeds: list[int] = []
        for stream in request.streams:
            asked = self.streams.get(stream)
            if asked is not None:
                feeds += asked.hear(sender, request)
                live = max(asked.boundary, asked.tentative_boundary)
                state = self._state_of(stream)
                reports.append(StreamReport(stream, state, asked.boundary, live, asked.first_id))
        told, members = self.consumers.told(sender), self.consumers.membership
        newer = members if members.epoch > request.epoch else None
        reply = HeartbeatReply(tuple(reports), tuple(feeds), told, members.epoch, newer)
        effects.append(Send(sender, reply))
        return effects

    def _counts(self, sender: str, request: HeartbeatRequest) -> bool:
        """Whether what is acknowledged lets anything go.

        Who obeys a newer membership may know of one who was added meanwhile, for whom nothing is
        kept here yet. The answer tells what is obeyed here, and the next request brings the rest.
        """
        behind = request.epoch > self.consumers.membership.epoch
        return not behind and self.consumers.counts(sender, request.incarnation)

    def look(self, measured: KeptMeasured, now: int) -> list[Effect]:
        """See whether more is kept for somebody who is away than may be."""
        sizes, tentative = dict(measured.sizes), dict(measured.tentative)
        return self.watch.look(self.streams, sizes, now, tentative, self.consumers.membership)

    def obey(self, membership: Membership) -> list[Effect]:
        """Keep for those who were added, and no longer for those who are gone."""
        for served in self.streams.values():
            for name, like in (*membership.added, *membership.taking):
                if served.acknowledgements.knows(like):
                    served.acknowledgements.take_in(name)
        return [
            effect
            for served in self.streams.values()
            for name, _ in membership.gone
            for effect in served.leave(name)
        ]

    def _meet(self, sender: str, incarnation: int) -> list[Effect]:
        """Hold everything for a life of a consumer that was not heard of before."""
        kept_for = [one for one in self.streams.values() if one.acknowledgements.knows(sender)]
        if not kept_for:
            return []
        if self.consumers.is_newer(sender, incarnation):
            for served in kept_for:
                served.acknowledgements.hold(sender)
        return self.consumers.hear(sender, incarnation)

    def validate(self) -> None:
        self.consumers.validate()
        for served in self.streams.values():
            served.validate()
