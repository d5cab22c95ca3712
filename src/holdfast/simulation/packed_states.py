"""The packed states of simulated replicas: on their way, in memory, and as a chain on disk.

What they are laid on is kept by the product's own rules (``core.laying``). A state that is laid on
another one than it was packed against, or found on disk beside another state's record, is a
violation, where the product would fail, or compute something wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from holdfast.core.laying import Bases, DiskEnd, Links
from holdfast.core.records import Checkpoint, RecoveryRecord
from holdfast.simulation.checkers import Violation


@dataclass(frozen=True)
class Packed:
    """A state; unless it is whole, what has changed since ``base``."""

    whole: bool
    base: object
    state: object
    boundary: int


Chain: TypeAlias = tuple[Packed, ...]


def lay(bases: Bases[Chain], checkpoint: Checkpoint, has_engine: bool, who: str) -> Chain:
    """What a checkpoint stands for: with an engine one state, else as it came on what was there."""
    packed = checkpoint.state
    assert isinstance(packed, Packed)
    try:
        under = bases.of(checkpoint) or ()
    except KeyError:
        raise Violation("standby", f"{who} was told to go on from what it has forgotten") from None
    if not packed.whole and (not under or under[-1].state != packed.base):
        raise Violation("standby", f"{who}: changes laid on the wrong state")
    if has_engine:
        return (Packed(True, None, packed.state, packed.boundary),)
    return (packed,) if packed.whole else (*under, packed)


@dataclass(frozen=True)
class Kept:
    """What an order has written of a state; ``number``: of which checkpoint, if of one."""

    links: Chain
    state: object
    number: int | None = None


class PackedStates:
    """The chain on one disk."""

    def __init__(self) -> None:
        self._links: Links[Packed] = Links()
        self._end: DiskEnd[object] = DiskEnd()
        # What the replica's states come out of, as far as the disk knows.
        self._origin: object = None
        # Of its own: what a full disk has taken of a state changes nothing else in a run.
        self._random = Random(0)

    def found(self, record: RecoveryRecord | None, who: str) -> object:
        """Another life begins: the state that is found with its record."""
        links = self._links.counted
        # What was written besides goes when the directory is opened.
        self._links, self._end = Links(links), DiskEnd()
        if not links or record is None:
            return None
        if links[-1].boundary != record.boundary:
            raise Violation(
                "kept",
                f"{who} has the state of {links[-1].boundary / 1e6:.3f} s on disk, and the record "
                f"of {record.boundary / 1e6:.3f} s",
            )
        self._end.found(links[-1].state)
        return links[-1].state

    def begin(self, state: object) -> None:
        """What is computed from now on comes out of this state."""
        self._end.begin(state)
        self._origin = state

    def own(self, record: RecoveryRecord, state: object) -> Kept:
        """What is written of a state that the replica has computed."""
        whole = not self._end.takes_own or self._links.is_long
        base = None if whole else self._end.state
        if not whole and base is not self._origin:
            raise Violation("kept", "changes since a state that this one does not come out of")
        return Kept((Packed(whole, base, state, record.boundary),), state)

    def taken(self, checkpoint: Checkpoint, chain: Chain, has_engine: bool) -> Kept:
        """What is written of a checkpoint, of which ``chain`` was made."""
        packed = checkpoint.state
        assert isinstance(packed, Packed)
        continues = not packed.whole and self._end.takes(checkpoint)
        stays = continues and not (has_engine and self._links.is_long)
        return Kept((packed,) if stays else chain, chain[-1].state, checkpoint.number)

    def keep(self, kept: Kept) -> None:
        """It is written, and so is its record."""
        self._write(kept)
        self._links.count()
        _check_fit(self._links.counted)
        if kept.number is None:
            self._end.has_own(kept.state)
            self._origin = kept.state
        else:
            self._end.has_taken(kept.number, kept.state)

    def fail(self, kept: Kept) -> None:
        """There was no room for all of it, or for the record after it."""
        self._end.begins_to_write()
        self._links.call_off()
        if self._random.random() < 0.5:
            self._write(kept)

    def _write(self, kept: Kept) -> None:
        self._end.begins_to_write()
        self._links.write(kept.links, kept.links[0].whole)

    def note(self) -> None:
        """Something else is written beside the record."""
        self._links.call_off()
        self._links.count()


def _check_fit(links: Chain) -> None:
    """Whoever reads them must be able to lay each on the one before."""
    before: Packed | None = None
    for link in links:
        if link.whole != (before is None) or (before and before.state != link.base):
            raise Violation("kept", f"the links of {link.boundary / 1e6:.3f} s do not fit on disk")
        before = link
