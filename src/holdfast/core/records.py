"""What is kept of a replica so that it, or another copy of it, can go on from there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from holdfast.core.frame import StreamFrame

# The id that follows what a log has of a stream up to a record: another network made that.
UNKNOWN_ID = -1


@dataclass(frozen=True, slots=True)
class RecoveryRecord:
    """Where a replica's stable state stood; with its output logs, all a restart needs.

    boundary  the stable state had taken every bucket below it.
    marker    the oldest input time that state still depends on.
    inputs    (stream, id of the first tuple at or after the marker).
    outputs   (stream, the id of the first tuple at or after the boundary). UNKNOWN_ID if what
              the log has from there on is not what is computed now: ids go on at its end.
    extent    with continuous checkpoints: the time of the oldest window state in the log that
              is needed.
    incarnation  which life of the replica's directory has written it (``core.membership``).
    """

    boundary: int
    marker: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    extent: int = 0
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class InLog:
    """The state at a record's boundary, with continuous checkpoints: the log has it."""

    record: RecoveryRecord


@dataclass(frozen=True, slots=True)
class Pieces:
    """The states of several shards at one boundary, of which a new one takes what is its own."""

    states: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class LoggedStream:
    """What a log holds of a stream when it is opened: STABLE and BOUNDARY frames in order.

    ``first_id`` is the first id not trimmed away, which matters when no frame is left.
    """

    stream: str
    first_id: int
    frames: tuple[StreamFrame, ...]


@dataclass(frozen=True, slots=True)
class Membership:
    """What has changed of who takes part, since the deployment's file was written.

    epoch  counts the changes: of two, the one with the greater number counts, as a whole.
    gone   (name, epoch): clients that were retired and replicas that were removed, and when. A
           name that is gone is never given to anybody else.
    added  (name, like): replicas that take part as ``like`` does, another one of their fragment.
    collected  (reader, stream, producer, epoch): feeds that cost more than they are worth, and
           since when; the reader keeps none there until it needs one (``core.revival``).
    taking  (name, like): replicas of new shards, and of what merges them, and the ones whose work
           they take over (``core.succession``). What is kept for ``like`` is kept for them, too,
           and it lends them its state; what they serve is theirs alone.
    leaving  (name, epoch): copies of passive and hybrid fragments that are about to go, and since
           when; the other copy of the fragment takes over before they do (``core.protected``).
    """

    epoch: int = 0
    gone: tuple[tuple[str, int], ...] = ()
    added: tuple[tuple[str, str], ...] = ()
    collected: tuple[tuple[str, str, str, int], ...] = ()
    taking: tuple[tuple[str, str], ...] = ()
    leaving: tuple[tuple[str, int], ...] = ()

    def collected_from(self, reader: str, stream: str) -> dict[str, int]:
        """The producers whose feed of a stream is collected for a reader, and since when."""
        return {
            producer: epoch
            for one, name, producer, epoch in self.collected
            if (one, name) == (reader, stream)
        }

    def gone_since(self, name: str) -> int | None:
        """The epoch in which ``name`` went; None if it takes part, or never did."""
        return next((epoch for one, epoch in self.gone if one == name), None)

    def leaves_since(self, name: str) -> int:
        """The epoch since which a copy is about to go; 0 if it is not."""
        return next((epoch for one, epoch in self.leaving if one == name), 0)

    def applied_to(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those of some who have the same part, and those who were added to them, now."""
        found = list(names)
        for name, like in self.added:
            if like in found and name not in found:
                found.append(name)
        return tuple(name for name in found if self.gone_since(name) is None)

    def with_another(self, name: str, like: str) -> Membership:
        """The next one, in which a new replica takes part as another one does."""
        epoch, added = self.epoch + 1, (*self.added, (name, like))
        return replace(self, epoch=epoch, added=added)

    def without(self, *names: str) -> Membership:
        """The next one, in which these are gone, too."""
        epoch = self.epoch + 1
        gone = (*self.gone, *((name, epoch) for name in names))
        left = tuple(one for one in self.collected if not {one[0], one[2]} & set(names))
        leaving = tuple(one for one in self.leaving if one[0] not in names)
        return replace(self, epoch=epoch, gone=gone, collected=left, leaving=leaving)

    def without_soon(self, name: str) -> Membership:
        """The next one, in which a copy is about to go: the other one takes over."""
        epoch = self.epoch + 1
        others = (one for one in self.leaving if one[0] != name)
        return replace(self, epoch=epoch, leaving=(*others, (name, epoch)))

    def staying(self, name: str) -> Membership:
        """The next one, in which a copy that was about to go stays."""
        left = tuple(one for one in self.leaving if one[0] != name)
        return replace(self, epoch=self.epoch + 1, leaving=left)

    def with_in_place_of(self, name: str, like: str, gone: str) -> Membership:
        """The next one, in which a new copy takes the place of one of two, beside ``like``."""
        return replace(self.without(gone), added=(*self.added, (name, like)))

    def with_shards(
        self, taking: Iterable[tuple[str, str]], merging: Iterable[tuple[str, str]]
    ) -> Membership:
        """The next one, in which new shards take over from others.

        merging  those among them that merge the shards: they are read as the old ones are.
        """
        epoch = self.epoch + 1
        taken, added = (*self.taking, *taking), (*self.added, *merging)
        return replace(self, epoch=epoch, added=added, taking=taken)

    def collecting(
        self, feeds: Iterable[tuple[str, str, str]], used: Iterable[tuple[str, str, str]] = ()
    ) -> Membership:
        """The next one, in which some feeds are collected, and others are used again.

        What was collected before is told anew where it is named: the reader may have revived it.
        """
        epoch = self.epoch + 1
        fresh = [(*feed, epoch) for feed in feeds]
        named = {*(one[:3] for one in fresh), *used}
        left = [one for one in self.collected if one[:3] not in named]
        return replace(self, epoch=epoch, collected=(*left, *fresh))


@dataclass(frozen=True, slots=True)
class ConsumersRecord:
    """The incarnations of those who have one, and who takes part, as they are on disk.

    ``number`` grows.
    """

    number: int = 0
    lives: tuple[tuple[str, int], ...] = ()
    membership: Membership = Membership()


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Where a stream ended for those who read it: the id that comes next, and the boundary."""

    stream: str
    next_id: int
    boundary: int


@dataclass(frozen=True, slots=True)
class Found:
    """What an earlier life of a replica has left on disk.

    record     where its stable state stood; None if it never wrote one.
    state      that state, or what it can be rebuilt from, as the runtime's jobs take it.
    queues     what the logs hold of the output streams.
    consumers  which lives of its consumers count.
    ended      whether it ended in order, with all that was read in its logs (``core.ending``).
    """

    record: RecoveryRecord | None = None
    state: object = None
    queues: tuple[LoggedStream, ...] = ()
    consumers: ConsumersRecord | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A copy's stable state and output queue, never its input queue.

    number  names it: unique among all its sender ever made.
    base    the checkpoint it builds on, which its receiver has taken; None if it is whole.
    queues  the output queues: stable frames and a boundary; with a base, what the base lacks.
    state   the fragment's state at the record's boundary; the runtime packs and unpacks it.
            With continuous checkpoints InLog: the runtime sends the piece of its log that the
            record needs and the base lacks.
    wanted  it answers a StateRequest: its receiver may be running and jump to it.
    answers (incarnation, round) of the JoinRequest it answers; None if it answers none.
    query   what its sender computes (``ReplicaSettings``): nobody else may go on from it.
    """

    number: int
    term: int
    base: int | None
    record: RecoveryRecord
    queues: tuple[LoggedStream, ...]
    state: object
    wanted: bool = False
    answers: tuple[int, int] | None = None
    query: str = ""
