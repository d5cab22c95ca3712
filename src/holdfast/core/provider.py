"""The serving side of a process: its streams, their feeds, and answers to heartbeats.

Replicas and entry points serve in the same way; this is what they share.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.effects import Effect, Send
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
from holdfast.core.serving import ServedStream


class Provider:
    """The streams of one process, for whoever subscribes."""

    def __init__(
        self, streams: dict[str, ServedStream], state_of: Callable[[str], StreamState]
    ) -> None:
        self.streams = streams
        self._state_of = state_of

    def handle(self, sender: str, message: Message, now: int) -> list[Effect]:
        match message:
            case HeartbeatRequest():
                return self._heartbeat(sender, message, now)
            case Subscribe(stream, feed):
                if stream not in self.streams:
                    return [Send(sender, SubscribeRefused(feed, NotServed.UNKNOWN, stream))]
                return self.streams[stream].subscribe(sender, message)
            case Unsubscribe(feed):
                for served in self.streams.values():
                    served.unsubscribe(sender, feed)
        return []

    def _heartbeat(self, sender: str, request: HeartbeatRequest, now: int) -> list[Effect]:
        effects: list[Effect] = []
        for stream, first_needed in request.acks:
            if stream in self.streams:
                effects += self.streams[stream].acknowledge(sender, first_needed, now)
        reports = []
        feeds: list[int] = []
        for stream in request.streams:
            served = self.streams.get(stream)
            if served is not None:
                feeds += served.hear(sender, request)
                live = max(served.boundary, served.tentative_boundary)
                state = self._state_of(stream)
                reports.append(StreamReport(stream, state, served.boundary, live))
        effects.append(Send(sender, HeartbeatReply(tuple(reports), tuple(feeds))))
        return effects

    def validate(self) -> None:
        for served in self.streams.values():
            served.validate()
