"""What a driver orders its runtime to do. The runtime carries these out in order.

Failures of an order come back as events (JobFailed, AppendFailed); a Send may be lost
without notice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from holdfast.core.continuous import CheckWindows, LookAtWindows
from holdfast.core.frame import Header, Why
from holdfast.core.messages import Message, StreamFrame
from holdfast.core.provenance import Choice, Claim, Trail
from holdfast.core.records import Checkpoint, ConsumersRecord, RecoveryRecord, StreamEnd


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message; best effort, in order within one feed."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call with TimerFired at this time; replaces the timer set before."""

    at: int


@dataclass(frozen=True, slots=True)
class InputSlice:
    """A part of one received block: rows from ``skip`` on whose stime is in the range."""

    stream: str
    header: Header
    block: object
    skip: int
    stime_from: int
    stime_to: int


class Line(Enum):
    """Which version of the fragment a job advances (versions.py)."""

    STABLE = "stable"
    LIVE = "live"
    REBUILD = "rebuild"


@dataclass(frozen=True, slots=True)
class GiveUp:
    """With undo/redo: what tentative input reaches of the stable version's state is not kept.

    state     that state, or what is left of it.
    boundary  where it stands.
    inputs    the inputs of which the live version has taken tentative tuples, or lacked some.
    """

    state: object
    boundary: int
    inputs: frozenset[str]


@dataclass(frozen=True, slots=True)
class RunJob:
    """Advance a state version from ``start`` to ``stop``; comes back as JobDone or JobFailed.

    line       whose state it is. A REBUILD emits nothing: it makes the state of ``stop`` again.
    state      a version from an earlier JobDone, a state that was kept (of a checkpoint that was
               applied, of what was found on disk, or InLog), or None for the empty state. Of a
               REBUILD it may be what is left of a state (``events.Left``), whose rest is made.
    slices     the input, in no particular order; the engine sorts by stime, stream and id.
    emit_from  (output, stime): leave out, but count, what is older than this.
    note       figures to be written beside window states, for those who inspect the log.
    gives_up   what to divide a state by meanwhile; JobDone has what is left of it.
    """

    job: int
    line: Line
    state: object
    start: int
    stop: int
    slices: tuple[InputSlice, ...]
    emit_from: tuple[tuple[str, int], ...]
    note: tuple[tuple[str, int], ...] = ()
    gives_up: GiveUp | None = None


@dataclass(frozen=True, slots=True)
class EarlyPiece:
    """Tuples of one input that go out before their bucket is complete (early_lane.py).

    slices  one at least.
    choice  which tuples of the slices; None for all.
    claims  what they are all of. If there are none, the tuples are looked at: each is claimed
    trails  for itself, by the one of these trails that it came by; others are left out.
    """

    slices: tuple[InputSlice, ...]
    choice: Choice | None
    claims: tuple[Claim, ...]
    trails: tuple[Trail, ...] = ()

    @property
    def stream(self) -> str:
        """The input they are of."""
        return self.slices[0].stream

    @property
    def count(self) -> int:
        """How many tuples there are at most."""
        return sum(one.header.count for one in self.slices)

    @property
    def newest(self) -> int:
        """The newest time they may have."""
        return max(one.header.stime_max for one in self.slices)


@dataclass(frozen=True, slots=True)
class RunEarly:
    """Compute what follows from these tuples, each for itself; comes back as EarlyDone or
    EarlyFailed. It is done beside the other jobs, and no state changes."""

    job: int
    pieces: tuple[EarlyPiece, ...]


@dataclass(frozen=True, slots=True)
class RunAhead:
    """Advance a state by some of the inputs, beside the other jobs (ahead.py); comes back as
    AheadDone or AheadFailed.

    state   the stable version's, as in RunJob, or of an earlier AheadDone.
    slices  the input from ``start`` up to ``stop``; of other inputs there is none.
    claims  (output, claims): which of its results are wanted.
    """

    job: int
    state: object
    start: int
    stop: int
    slices: tuple[InputSlice, ...]
    claims: tuple[tuple[str, tuple[Claim, ...]], ...]


@dataclass(frozen=True, slots=True)
class RunPairs:
    """Find the pairs of joins that are there, beside the other jobs, and without changing a state
    (pairs.py); comes back as PairsDone or PairsFailed.

    state   as in RunAhead.
    slices  the stable input from ``start`` on that has come.
    pieces  what has come early besides; a tuple may be in several of them.
    wanted  (output, trails, claims): which of its results are wanted, and which of those are known.
    most    so many pairs at most; the rest is left out.
    """

    job: int
    state: object
    start: int
    slices: tuple[InputSlice, ...]
    pieces: tuple[EarlyPiece, ...]
    wanted: tuple[tuple[str, tuple[Trail, ...], tuple[Claim, ...]], ...]
    most: int


@dataclass(frozen=True, slots=True)
class ReadWindows:
    """Look at windows in a state, or read them for the log; comes back as WindowsRead.

    It is done beside the next job.

    at  the time at which the state stands.
    """

    round: int
    state: object
    at: int
    order: LookAtWindows | CheckWindows
    note: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class CancelJob:
    """The result of this job is no longer wanted; ending it early saves work."""

    job: int


@dataclass(frozen=True, slots=True)
class Append:
    """Make frames durable, then the record; comes back as Appended or AppendFailed.

    1. Append every stream's frames to its log.
    2. Sync the logs.
    3. Append the record, if there is one, and sync it: it may never be found on disk
       without the frames of step 1.
    4. Report Appended.

    What of this a disk has already, and which record replaces which, says ``core.keeping``.

    begins  (stream, id): a log that ends before this id goes on there (a SKIP): everyone has
            acknowledged what lies between.
    state   the fragment's state at the record's boundary, for those who keep it with the record.
    """

    append: int
    frames: tuple[tuple[str, tuple[StreamFrame, ...]], ...]
    record: RecoveryRecord | None = None
    state: object = None
    begins: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class TrimLog:
    """Every consumer has acknowledged what is below this id; its space may go.

    The log may not hold that much yet: its end, and the id that comes next there, stay. So do
    window states of ``windows_from`` and later, whatever is acknowledged: some record that
    may still be used needs them.
    """

    stream: str
    below_id: int
    windows_from: int = 0


@dataclass(frozen=True, slots=True)
class KeepConsumers:
    """Write down which lives of the consumers count, in place of what was there; comes back as
    ConsumersKept or ConsumersNotKept."""

    record: ConsumersRecord


@dataclass(frozen=True, slots=True)
class KeepEnd:
    """After all that was ordered before: write down that this life has ended in order, and where
    its streams did (``core.ending``). What is written goes when another life begins, first of all.
    """

    ends: tuple[StreamEnd, ...]


@dataclass(frozen=True, slots=True)
class AcceptTuples:
    """Tell the source that its tuples below ``next_id`` are safe."""

    next_id: int


@dataclass(frozen=True, slots=True)
class RefuseBatch:
    """Tell the source that a batch was not taken, and why; ``next_id`` is what it may offer."""

    next_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class DeliverTuples:
    """Give the application rows of a block: from ``skip`` on, of stime ``stime_from`` on.

    The header's kind says whether they are stable, tentative or early, which is stable without a
    place yet; ``why``, why they are tentative. ``choice``: only some of them.
    """

    stream: str
    header: Header
    block: object
    skip: int
    stime_from: int
    why: Why | None = None
    choice: Choice | None = None


@dataclass(frozen=True, slots=True)
class DeliverUndo:
    """Tell the application that tentative tuples older than ``below_stime`` are taken back.

    The stable tuples from ``first_id`` on, which follow, stand in their place.
    """

    stream: str
    first_id: int
    below_stime: int


@dataclass(frozen=True, slots=True)
class DeliverBoundary:
    """Tell the application that its stable stream is complete up to this time."""

    stream: str
    boundary: int


@dataclass(frozen=True, slots=True)
class ApplyCheckpoint:
    """Hold a checkpoint of the other copy; comes back as CheckpointApplied or CheckpointFailed.

    held  the number of the one that is held already; the next one may build on that, too, whatever
          comes of this one. None if none is.

    1. Make its state one that jobs can start from, laid on the base's if it has one.
    2. Where checkpoints are persisted: append the frames of its queues to the logs (one that
       ends before a queue begins goes on there: everyone has what lies between), and sync them;
       then write state and record, and sync them.
    3. Report CheckpointApplied.
    """

    checkpoint: Checkpoint
    held: int | None = None


@dataclass(frozen=True, slots=True)
class BeginRunning:
    """Jobs will follow, which go on from this record and state."""

    record: RecoveryRecord
    state: object


@dataclass(frozen=True, slots=True)
class StopRunning:
    """No job follows until BeginRunning; the result of one under way is not wanted."""


@dataclass(frozen=True, slots=True)
class TimeStandardSet:
    """Run the standard set of tuples and say how long it took: StandardSetTimed."""


@dataclass(frozen=True, slots=True)
class StartOver:
    """What is kept here nobody can go on from any more: put the record aside and end this process.

    Who started it starts it again, and it joins.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class EndProcess:
    """End this process: what is wrong cannot be healed in it. Who started it starts it again.

    lasting  not again: it takes part no longer.
    """

    reason: str
    lasting: bool = False


# Who gives which orders. Whoever carries orders out names each of its own, so that a type checker
# misses those that are new; the simulator's are compared with these in tests.
OfAll: TypeAlias = Send | SetTimer | EndProcess
OfServing: TypeAlias = Append | TrimLog | KeepConsumers
OfEntryPoints: TypeAlias = AcceptTuples | RefuseBatch
OfReplicas: TypeAlias = (
    RunJob
    | RunEarly
    | RunAhead
    | RunPairs
    | ReadWindows
    | CancelJob
    | ApplyCheckpoint
    | BeginRunning
    | StopRunning
    | TimeStandardSet
    | StartOver
    | KeepEnd
)
OfClients: TypeAlias = DeliverTuples | DeliverUndo | DeliverBoundary

Effect: TypeAlias = OfAll | OfServing | OfEntryPoints | OfReplicas | OfClients
