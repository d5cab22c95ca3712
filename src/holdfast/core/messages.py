"""What processes of a network say to each other: streams, heartbeats, partners.

Messages between two processes may be lost or late, and messages of different connections
overtake each other. A feed is a connection of its own: it loses nothing unless it breaks, and its
reader is told then. Nothing here relies on more: every feed message carries its place in the
feed, and every heartbeat compares which feeds one side serves with those the other has.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from holdfast.core.frame import StreamFrame as StreamFrame
from holdfast.core.records import Checkpoint, Membership


class StreamState(Enum):
    """What a replica says of one of its output streams.

    SUSPENDED: it stands by; the stream will flow from here when it wakes.
    """

    STABLE = "stable"
    UP_FAILURE = "up_failure"
    STABILIZATION = "stabilization"
    RECOVERING = "recovering"
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True)
class StreamReport:
    """One stream in a heartbeat: its state, how far it is stable, how far it is at all.

    ``first_id`` is the first tuple that can be had from here.
    """

    stream: str
    state: StreamState
    boundary: int
    live_boundary: int
    first_id: int = 0


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """Are you there, and how are these streams?

    acks         (stream, first id this consumer may still need again): the rest may go.
    feeds        the feeds the consumer has open at this peer.
    newest_feed  the newest feed id the consumer ever issued; an older one that is not in
                 ``feeds`` is no longer wanted.
    incarnation  which life of the consumer's directory asks (``core.membership``).
    epoch        of the membership that the asker obeys.
    membership   that one, if the peer is known to obey an older one.
    full         why the asker wants no more for now, in words: more is kept there, or behind it,
                 than may be (``core.bounds``).
    """

    streams: tuple[str, ...]
    acks: tuple[tuple[str, int], ...]
    feeds: tuple[int, ...]
    newest_feed: int
    incarnation: int = 0
    epoch: int = 0
    membership: Membership | None = None
    full: str = ""


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """I am.

    feeds        those of the asker's feeds that are served here.
    incarnation  the newest life of the asker's name, as it is on disk here: if it is the asker's
                 own, nothing is trimmed before it acknowledges it; if it is greater, the asker
                 was replaced.
    epoch        of the membership that is obeyed here.
    membership   that one, if the asker obeys an older one.
    """

    reports: tuple[StreamReport, ...]
    feeds: tuple[int, ...]
    incarnation: int = 0
    epoch: int = 0
    membership: Membership | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """The tuples of a stream that a shard takes: those of a range of slots, told by some columns.

    What a slot is belongs to whoever looks into tuples (``slots``).
    """

    first: int
    end: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Send me this stream: stable tuples from ``next_id``, tentative ones from a time on.

    ``tentative_boundary`` is how far in stream time the subscriber already has tentative
    tuples from anywhere. It is the form the tmax rule takes when results come in buckets:
    what another replica said about earlier times is not said again. ``early``: also results
    whose place in the stream is not known yet, if the stream has such.

    A ``next_id`` below zero is for wherever the stream is now: what was before is not sent.

    ``part`` is what the subscriber takes of the tuples; all of them without it. Frames are those of
    the whole stream, with its ids and times; tuples of other slots may be left out of their blocks.
    """

    stream: str
    feed: int
    next_id: int
    tentative_boundary: int
    part: Part | None = None
    early: bool = False


class NotServed(Enum):
    """Why a subscription is refused.

    RECOVERING: not yet; ask again. UNKNOWN: no such stream here. TRIMMED: what was asked for was
    acknowledged and is no longer kept. NOT_HERE: it is not kept here; another replica may have it.
    LOST: the log ends before what was asked for. REMOVED: the asker takes part no longer.
    """

    RECOVERING = "recovering"
    UNKNOWN = "unknown"
    TRIMMED = "trimmed"
    NOT_HERE = "not here"
    LOST = "lost"
    REMOVED = "removed"

    @property
    def is_lasting(self) -> bool:
        """Whether asking again changes nothing."""
        return self is not NotServed.RECOVERING


@dataclass(frozen=True, slots=True)
class SubscribeRefused:
    """No. ``detail`` says more, to people."""

    feed: int
    why: NotServed
    detail: str = ""

    @property
    def text(self) -> str:
        return f"{self.why.value}: {self.detail}" if self.detail else self.why.value


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """I take this stream elsewhere now."""

    feed: int


@dataclass(frozen=True, slots=True)
class FeedFrames:
    """The ``seq``-th message of a feed, from 0; its frames are applied all or none."""

    feed: int
    seq: int
    frames: tuple[StreamFrame, ...]


class PostponeAnswer(Enum):
    """What a partner replies when asked to postpone its own reconciliation."""

    GRANTED = "granted"
    NOT_NEEDED = "not_needed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PostponeRequest:
    """I want to reconcile; go on processing new tuples until I am done.

    reach  how far in time I could go on with new tuples myself: who is far behind that, or gets
           none, does not stand in for me.
    """

    round: int
    reach: int = 0


@dataclass(frozen=True, slots=True)
class PostponeReply:
    """GRANTED: I go on. NOT_NEEDED: I am stable anyway. REFUSED: I cannot."""

    round: int
    answer: PostponeAnswer


@dataclass(frozen=True, slots=True)
class PostponeRelease:
    """I am done (or gave up); your turn."""

    round: int


class CopyState(Enum):
    """What one of the copies of a passive or hybrid fragment is doing (standby.py)."""

    JOINING = "joining"
    SUSPENDED = "suspended"
    AWAKE = "awake"
    PRIMARY = "primary"


@dataclass(frozen=True, slots=True)
class CopyReport:
    """One copy to another: how am I.

    term           who is the primary: the copies take turns, a term each.
    boundary       the stable state I run on or hold has taken every bucket below it; -1 if
                   I have none.
    live_boundary  how far my results go at all.
    ready          I run and have caught up with my input.
    overloaded     my own detector says that I am too slow to be waited for.
    stalled        I have work and do not get it done in time: count me as missing.
    holds          the number of your checkpoint that I hold: says again what CheckpointTaken
                   said, which may have been lost.
    hears          I hear the primary: nobody who comes after me has to stand in for it.
    load           how much of its time my process is at work, in thousandths.
    arrives        I take another one's place, and hold nothing yet.
    """

    term: int
    state: CopyState
    boundary: int
    live_boundary: int
    ready: bool
    overloaded: bool = False
    holds: int = 0
    stalled: bool = False
    hears: bool = False
    load: int = 0
    arrives: bool = False


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """Are you there?"""

    report: CopyReport


@dataclass(frozen=True, slots=True)
class CopyReply:
    """I am."""

    report: CopyReport


@dataclass(frozen=True, slots=True)
class StateRequest:
    """Send me your state if it is newer than this: read state on rollback."""

    boundary: int


class Refusal(Enum):
    """Why a checkpoint was not taken, or is not sent."""

    NOT_NEWER = "not newer than what is here"
    WHOLE_NEEDED = "what it builds on is not here"
    OLD_TERM = "of an earlier term"
    OTHER_QUERY = "of another query"
    BUSY = "another is being taken"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """I have nothing: send me your state and where your output stands (``core.joining``).

    Asked again under the same round it is the same request; a checkpoint answers one round of one
    incarnation, and no other.

    at     the boundary that the state is to be of, exactly (``core.succession``); None for any.
    query  what I compute: the state of anything else is of no use to me.
    """

    incarnation: int
    round: int
    at: int | None = None
    query: str = ""


@dataclass(frozen=True, slots=True)
class JoinReply:
    """Whether a checkpoint comes; if not, ask somebody else.

    reached  how far its state is, or will be after the job that runs; -1 if there is none.
    refused  why none comes though there may be one.
    """

    incarnation: int
    round: int
    comes: bool
    reached: int = -1
    refused: Refusal | None = None


@dataclass(frozen=True, slots=True)
class CheckpointShipped:
    """Here is what you need to stand in for me, or to jump to where I am."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class CheckpointTaken:
    """I have it: in memory, and on disk where that is asked for."""

    number: int


@dataclass(frozen=True, slots=True)
class CheckpointRefused:
    """I do not have it."""

    number: int
    reason: Refusal


# What a provider is asked, and what replicas of one fragment say to each other: about who goes on,
# and about state that one gives the other. (Tuples: they are looked into with every message.)
ASKED = (HeartbeatRequest, Subscribe, Unsubscribe)
AMONG_PARTNERS = (PostponeRequest, PostponeReply, PostponeRelease)
ABOUT_STATE = (JoinRequest, CheckpointShipped, CheckpointTaken, CheckpointRefused)

Message: TypeAlias = (
    HeartbeatRequest
    | HeartbeatReply
    | Subscribe
    | SubscribeRefused
    | Unsubscribe
    | FeedFrames
    | PostponeRequest
    | PostponeReply
    | PostponeRelease
    | CopyRequest
    | CopyReply
    | StateRequest
    | JoinRequest
    | JoinReply
    | CheckpointShipped
    | CheckpointTaken
    | CheckpointRefused
)
