"""What happens to a process: the facts its runtime reports to the driver.

A runtime calls ``driver.handle(event, now)`` with one of these and carries out the effects
it gets back, in order. It decides nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from holdfast.core.continuous import Checked, Looked, Restored, RoundFailed, StateReached
from holdfast.core.frame import Kind
from holdfast.core.messages import Message
from holdfast.core.provenance import Claim
from holdfast.core.records import LoggedStream as LoggedStream
from holdfast.core.records import Membership as Membership
from holdfast.core.records import RecoveryRecord as RecoveryRecord
from holdfast.core.stream_copy import FAR_FUTURE


@dataclass(frozen=True, slots=True)
class Started:
    """The process is up; ``handle`` is called for the first time."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The process ends in order: nobody is sent anything more, and no other fact follows."""


@dataclass(frozen=True, slots=True)
class MessageArrived:
    """A peer's message."""

    sender: str
    message: Message


@dataclass(frozen=True, slots=True)
class PeerUnreachable:
    """A question could not even be put: nobody listens at the peer's address."""

    peer: str


@dataclass(frozen=True, slots=True)
class FeedLost:
    """The connection of a feed broke: nothing more comes on it. Noticed sooner or later."""

    feed: int


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time of the last SetTimer has come (or something like it: early is harmless)."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A client's application has what is below this id, whatever becomes of the client."""

    next_id: int


@dataclass(frozen=True, slots=True)
class OutputBlock:
    """What a job produced on one output, from ``emit_from`` on.

    ``skipped`` counts the tuples below ``emit_from``, which were there before and are left
    out; the protocol checks that they are exactly as many as it had.
    """

    stream: str
    count: int
    skipped: int
    stime_min: int
    stime_max: int
    tmax: int
    block: object


@dataclass(frozen=True, slots=True)
class WindowBlock:
    """States of windows as they were at ``time``, for the log (``core.continuous``)."""

    kind: Kind
    count: int
    time: int
    block: object


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a state when the operators that some inputs reach have given theirs up.

    state   that of the other operators.
    marker  the stream marker of those that had not given it up before: the input since then makes
            it again. Where the state stands, if there is nothing to make again.
    """

    state: object
    marker: int


@dataclass(frozen=True, slots=True)
class JobDone:
    """A job ended well.

    state    the fragment's new state version.
    marker   the oldest input time that still contributes to it (at most the job's end).
    left     what is left of the state that was to be given up (``effects.GiveUp``).
    due      when the state gives a result though nothing more comes: some window ends.

    With continuous checkpoints, for a job of the stable version:

    windows   states of windows that opened or changed: they are in the log when a record is.
    reached   how many, and which.
    restored  what was found in the log, if the job began from there.
    took_us   how long it took.
    """

    job: int
    state: object
    marker: int
    outputs: tuple[OutputBlock, ...]
    windows: tuple[WindowBlock, ...] = ()
    reached: StateReached | None = None
    restored: Restored | None = None
    took_us: int = 0
    left: Left | None = None
    due: int = FAR_FUTURE


@dataclass(frozen=True, slots=True)
class WindowsRead:
    """What came of ReadWindows; ``windows`` are the states that were read, for the log."""

    round: int
    answer: Looked | Checked | RoundFailed
    windows: tuple[WindowBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class WindowsTimed:
    """Loading window states from the log took so long, for each."""

    load_us: float


@dataclass(frozen=True, slots=True)
class JobFailed:
    """A job ended without a result; its input state is untouched.

    user_code  the query's own code raised it, so it would anywhere.
    no_room    a disk is full, which a new engine would find as full.
    """

    job: int
    reason: str
    user_code: bool = False
    no_room: bool = False


@dataclass(frozen=True, slots=True)
class EarlyDone:
    """What came of RunEarly; ``found`` has, for each piece without claims, those of its tuples."""

    job: int
    outputs: tuple[OutputBlock, ...]
    found: tuple[tuple[Claim, ...], ...]


@dataclass(frozen=True, slots=True)
class EarlyFailed:
    """RunEarly came to nothing; the tuples still come out with their buckets."""

    job: int
    reason: str


@dataclass(frozen=True, slots=True)
class AheadDone:
    """What came of RunAhead: the state after it, and the results that were wanted."""

    job: int
    state: object
    outputs: tuple[OutputBlock, ...]


@dataclass(frozen=True, slots=True)
class AheadFailed:
    """RunAhead came to nothing; the results still come out with their buckets."""

    job: int
    reason: str


@dataclass(frozen=True, slots=True)
class PairsDone:
    """What came of RunPairs: the pairs, and (output, claims), each of them alone."""

    job: int
    outputs: tuple[OutputBlock, ...]
    found: tuple[tuple[str, tuple[Claim, ...]], ...]


@dataclass(frozen=True, slots=True)
class PairsFailed:
    """RunPairs came to nothing; the pairs still come out with their buckets."""

    job: int
    reason: str


# How jobs end that run beside the others.
Beside: TypeAlias = EarlyDone | EarlyFailed | AheadDone | AheadFailed | PairsDone | PairsFailed


@dataclass(frozen=True, slots=True)
class Appended:
    """An append, and its record if it had one, is on disk and synced."""

    append: int


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """An append did not reach the disk as a whole.

    taken  the streams whose logs have all of their frames, synced. Of the others nothing will be
           found, and neither will the record.
    """

    append: int
    reason: str
    taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumersKept:
    """A record of the consumers is on disk and synced."""

    number: int


@dataclass(frozen=True, slots=True)
class MembershipTold:
    """Who takes part has changed, says whoever decides it."""

    membership: Membership


@dataclass(frozen=True, slots=True)
class KeptMeasured:
    """How many bytes of each stream are kept; and of its tentative tuples."""

    sizes: tuple[tuple[str, int], ...]
    tentative: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumersNotKept:
    """A record of the consumers did not reach the disk."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """A source hands its entry point tuples, and counts them: ``first_id`` came before.

    The count is what makes handing them over again harmless; it is 0 if no row became a tuple.
    No tuple after them is older than ``reached``, if tuples bring their own time.
    """

    first_id: int
    count: int
    stime_min: int
    stime_max: int
    block: object
    reached: int = 0


@dataclass(frozen=True, slots=True)
class SourceReached:
    """A source that brings its own time, and all of whose tuples were taken, promises that no
    older one follows."""

    stime: int


@dataclass(frozen=True, slots=True)
class CheckpointApplied:
    """A checkpoint is held: ``state`` is its state as this replica's jobs take it."""

    number: int
    state: object


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """A checkpoint could not be held; what was held before still is."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointNotSent:
    """A checkpoint did not leave this machine, or nobody took it: no word of the other copy's."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class LoadMeasured:
    """The share of this machine's CPU time that was used since the last look."""

    load: float


@dataclass(frozen=True, slots=True)
class ProcessorsMeasured:
    """The share of this machine's processors that was used since the last look, by whatever does
    not give way to others."""

    used: float


@dataclass(frozen=True, slots=True)
class BusyMeasured:
    """The share of the last seconds in which this process was at work."""

    share: float


@dataclass(frozen=True, slots=True)
class StandardSetTimed:
    """The standard set of tuples took so long; the first time on an idle machine."""

    took_us: int


Event: TypeAlias = (
    Started
    | Ending
    | MessageArrived
    | PeerUnreachable
    | FeedLost
    | TimerFired
    | Committed
    | JobDone
    | JobFailed
    | EarlyDone
    | EarlyFailed
    | AheadDone
    | PairsDone
    | PairsFailed
    | AheadFailed
    | WindowsRead
    | WindowsTimed
    | Appended
    | AppendFailed
    | ConsumersKept
    | ConsumersNotKept
    | MembershipTold
    | KeptMeasured
    | SourceBatch
    | CheckpointApplied
    | CheckpointFailed
    | CheckpointNotSent
    | LoadMeasured
    | ProcessorsMeasured
    | BusyMeasured
    | StandardSetTimed
    | SourceReached
)
