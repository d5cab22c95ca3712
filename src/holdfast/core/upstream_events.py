"""What one input stream of a process is told, and what it orders (``core.upstream``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from holdfast.core.effects import Send
from holdfast.core.messages import FeedFrames, StreamFrame, StreamReport


@dataclass(frozen=True, slots=True)
class PeerReported:
    """A heartbeat reply: the stream's report and which of our feeds the peer serves."""

    peer: str
    report: StreamReport
    feeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PeerSilent:
    """The failure detector gave the peer up."""

    peer: str


@dataclass(frozen=True, slots=True)
class FeedArrived:
    """A message of one of our feeds, or of one we have left."""

    peer: str
    message: FeedFrames


@dataclass(frozen=True, slots=True)
class FeedBroken:
    """A feed was refused, its connection broke or it skipped tuples."""

    feed: int


UpstreamEvent: TypeAlias = PeerReported | PeerSilent | FeedArrived | FeedBroken


@dataclass(frozen=True, slots=True)
class TakeFrames:
    """Frames for whoever uses the stream, in order; a gap in them is answered with FeedBroken."""

    stream: str
    frames: tuple[StreamFrame, ...]
    feed: int


@dataclass(frozen=True, slots=True)
class JudgeSource:
    """Whether a stable, current replica of the stream is known has changed."""

    stream: str
    hopeless: bool


UpstreamEffect: TypeAlias = Send | TakeFrames | JudgeSource
