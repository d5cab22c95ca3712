"""How a replica's state is kept beside its logs: not at all, packed, or in the log itself.

Three ways, one for each ``Keeping``; the disk's thread (``stream_store``) calls them. Each keeps
the recovery record in ``state/manifest.json``, with what the query computes, so that no state is
ever taken for another query's.

- *nothing*: the record alone. A restart computes the state from the input since its marker.
- *state*: the packed state at the record's boundary, in the steps of ``state_directory``: whole
  now and then, and what has changed in between. A copy without an engine keeps what the other
  copy sends as it came; one with an engine lays it on what it has, so that a job could start
  from it at once.
- *windows*: the record alone; the states of single windows are in the log (``core.continuous``).

An older record never replaces a newer one (``core.keeping``): an order of a copy that has since
taken the other's newer state may still come.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.effects import ApplyCheckpoint
from holdfast.core.keeping import replaces
from holdfast.core.laying import Bases, DiskEnd
from holdfast.core.records import Checkpoint, InLog, LoggedStream, RecoveryRecord, StreamEnd
from holdfast.core.settings import Delivery, Keeping
from holdfast.errors import StateError
from holdfast.identity import identity_of, refuse_changed
from holdfast.kept.packed_codec import decode_record, encode_record
from holdfast.kept.state_directory import StateDirectory
from holdfast.packed import Chain, PackedState
from holdfast.spark.chains import Handle, Workshop
from holdfast.spark.state import EMPTY, State

# What a shard takes out of the states of those that had its slots before.
Divide = Callable[[Sequence[PackedState]], PackedState]
# What the log is to have of a state at a boundary, where the state is kept there.
IntoLog = Callable[[PackedState, int], LoggedStream]
# The state of a checkpoint at a boundary, out of those of several shards (``core.succession``).
Unite = Callable[[Sequence[object], int], object]


class KeptState(ABC):
    """What is on disk beside the logs of one replica: its record, and what it keeps of its state.

    Without a path, the record is in memory only.
    """

    def __init__(
        self,
        path: Path | None,
        network: Sequence[str],
        keeping: Keeping,
        earlier: Collection[str] = (),
        delivery: Delivery = Delivery.EXACTLY_ONCE,
        unite: Unite = lambda states, boundary: (),
    ) -> None:
        """``earlier``: the identities of other networks whose state is as good as that of
        ``network``."""
        self.unite = unite
        self._network = list(network)
        self._earlier = earlier
        self._keeping = keeping
        self._delivery = delivery
        self._directory = None if path is None else StateDirectory(path)
        # Where the streams of the life before ended, if it did in order (``core.ending``).
        self.ended: tuple[StreamEnd, ...] | None = None
        try:
            self.record = self._read()
        except BaseException:
            self.close()  # nobody else can: it is not there for anybody
            raise

    @abstractmethod
    def found(self) -> object:
        """The state that belongs to the record, as jobs take it."""

    @abstractmethod
    def begin(self, state: object) -> None:
        """What the replica computes from now on comes out of ``state``."""

    @abstractmethod
    def save(self, record: RecoveryRecord, state: object) -> None:
        """Keep what the replica itself has computed."""

    @abstractmethod
    def take(self, checkpoint: Checkpoint) -> object:
        """What a checkpoint of the other copy stands for, as jobs take it."""

    @abstractmethod
    def save_taken(self, order: ApplyCheckpoint, held: object) -> None:
        """Keep a checkpoint that was taken."""

    def close(self) -> None:
        if self._directory is not None:
            self._directory.close()

    def _read(self) -> RecoveryRecord | None:
        if self._directory is None or self._directory.manifest is None:
            return None
        manifest, path = self._directory.manifest, self._directory.path
        if identity_of(manifest["network"]) not in self._earlier:
            refuse_changed(manifest["network"], self._network, str(path))
        if manifest["kept"] != self._keeping.value:
            raise StateError(
                f"{path} was written with another way to reconcile or to checkpoint, which kept "
                f"{manifest['kept']}; this one keeps {self._keeping.value}. Use the one it was "
                f"written with, or a new data directory"
            )
        least = manifest.get("delivery") == Delivery.AT_LEAST_ONCE.value
        if least and self._delivery is Delivery.EXACTLY_ONCE:
            raise StateError(
                f"{path} was written with delivery = at-least-once, which keeps no log of results; "
                f"exactly-once goes on from one. Write at-least-once again, or use a new data "
                f"directory"
            )
        self.ended = msgspec.convert(manifest.get("ended"), tuple[StreamEnd, ...] | None)
        if self.ended is not None:
            # Nothing is published yet. Whatever befalls this life, that note is not about it.
            self._directory.note({"ended": None})
        return decode_record(manifest["record"])

    def end(self, ends: Sequence[StreamEnd]) -> None:
        """Note that this life ends in order, and where its streams do."""
        if self._directory is not None and self._directory.manifest is not None:
            self._directory.note({"ended": msgspec.to_builtins(ends)})

    def _count(self, record: RecoveryRecord) -> None:
        """Make the record, and what was written for it, count."""
        if self._directory is not None:
            manifest: dict[str, Any] = {
                "network": self._network,
                "kept": self._keeping.value,
                "delivery": self._delivery.value,
                "record": encode_record(record),
            }
            self._directory.write_manifest(manifest)
        self.record = record


class RecordOnly(KeptState):
    """Nothing beside the record: the state is computed again, or in the log."""

    def found(self) -> object:
        return None if self.record is None else self._in_log(self.record)

    def _in_log(self, record: RecoveryRecord) -> InLog | None:
        return InLog(record) if self._keeping is Keeping.WINDOWS else None

    def begin(self, state: object) -> None:
        pass  # nothing here builds on anything

    def save(self, record: RecoveryRecord, state: object) -> None:
        if replaces(record, self.record):
            self._count(record)

    def take(self, checkpoint: Checkpoint) -> object:
        return self._in_log(checkpoint.record)

    def save_taken(self, order: ApplyCheckpoint, held: object) -> None:
        self.save(order.checkpoint.record, held)


class PackedStates(KeptState):
    """The packed state at the record's boundary."""

    def __init__(
        self,
        path: Path | None,
        network: Sequence[str],
        workshop: Workshop,
        earlier: Collection[str] = (),
        delivery: Delivery = Delivery.EXACTLY_ONCE,
        unite: Unite = lambda states, boundary: (),
    ) -> None:
        """Without ``path`` nothing is on disk, and the other copy's checkpoints are in memory."""
        super().__init__(path, network, Keeping.STATE, earlier, delivery, unite)
        self._workshop = workshop
        self._bases: Bases[Handle] = Bases()
        self._disk_end: DiskEnd[Handle] = DiskEnd()

    def found(self) -> object:
        directory = self._directory
        if directory is None or self.record is None:
            return None
        chain = tuple(directory.read_state())
        if chain and chain[-1].boundary not in (self.record.boundary, EMPTY.boundary):
            raise StateError(
                f"{directory.path}: the state is that of {chain[-1].boundary / 1e6:.6f} s, and the "
                f"record, which says what comes next, that of {self.record.boundary / 1e6:.6f} s. "
                f"Input between them would be missing. Remove the directory: the replica begins "
                f"anew, with the state of another one or with all the input that there is"
            )
        self._disk_end.found(chain or None)
        return chain or None

    def begin(self, state: object) -> None:
        self._disk_end.begin(state)

    def save(self, record: RecoveryRecord, state: object) -> None:
        directory = self._directory
        if directory is None or not replaces(record, self.record):
            return
        own: Handle = state  # type: ignore[assignment]
        # A state that did not come out of the one on disk cannot be told as changes of it.
        whole = not self._disk_end.takes_own or directory.wants_whole()
        chain = self._workshop.pack(own, self._disk_end.state, whole)
        self._write(directory, chain, record)
        self._disk_end.has_own(own)

    def take(self, checkpoint: Checkpoint) -> object:
        chain = checkpoint.state
        assert isinstance(chain, tuple)
        return self._workshop.lay(chain, self._bases.of(checkpoint))

    def save_taken(self, order: ApplyCheckpoint, held: object) -> None:
        checkpoint = order.checkpoint
        made: Handle = held  # type: ignore[assignment]
        if self._directory is not None and replaces(checkpoint.record, self.record):
            chain = self._taken(self._directory, checkpoint, made)
            self._write(self._directory, chain, checkpoint.record)
            self._disk_end.has_taken(checkpoint.number, made)
        self._bases.add(order, made)

    def _taken(self, directory: StateDirectory, checkpoint: Checkpoint, held: Handle) -> Chain:
        """What is written of a checkpoint: its changes, if they are changes of what is there."""
        chain = checkpoint.state
        assert isinstance(chain, tuple)
        continues = chain[0].since is not None and self._disk_end.takes(checkpoint)
        if isinstance(held, State):
            stays = continues and not directory.wants_whole()
            return chain if stays else self._workshop.pack(held, None, True)
        assert held is not None, "a checkpoint stands for a state"
        return chain if continues else held

    def _write(self, directory: StateDirectory, chain: Chain, record: RecoveryRecord) -> None:
        self._disk_end.begins_to_write()
        # 1, 2: the state
        directory.write_state(chain, {})
        # 4, 5: the record makes it count
        self._count(record)


def _whole(workshop: Workshop, states: Sequence[object]) -> list[PackedState]:
    """Packed states, each in one piece."""
    packed: list[PackedState] = []
    for chain in states:
        assert isinstance(chain, tuple), "packed states come as chains"
        # One that is alone and whole needs no engine to be read.
        packed += chain if len(chain) == 1 else workshop.pack(chain, None, True)
    return packed


def keep_state(
    keeping: Keeping,
    path: Path | None,
    network: Sequence[str],
    workshop: Workshop,
    earlier: Collection[str],
    delivery: Delivery,
    divide: Divide,
    into_log: IntoLog,
) -> KeptState:
    """The way for a ``Keeping``; without ``path`` in memory only."""

    def unite(states: Sequence[object], boundary: int) -> object:
        if keeping is Keeping.NOTHING:
            return ()
        own = divide(_whole(workshop, states))
        return (own,) if keeping is Keeping.STATE else into_log(own, boundary)

    if keeping is Keeping.STATE:
        return PackedStates(path, network, workshop, earlier, delivery, unite)
    return RecordOnly(path, network, keeping, earlier, delivery, unite)
