"""What packed states are laid on: a copy's checkpoints on their bases, a disk's chain on its end.

Theory of operation. A packed state is whole, or says what has changed since an earlier one, which
whoever takes it must have. Checkpoints of another copy name theirs, their *base*: one that is held
here, as its sender knows. A checkpoint that is on its way may be of no use yet when it has been
unpacked: the disk is full, or the copy has awoken meanwhile. Then what was held before is still
held, and what comes next builds on that. So every order names it, and it stays until the next one
is held, whatever comes of this one.

On disk is a *chain*: a whole state and changes, each since the one before. What a copy has can be
written as changes only if it comes out of the state at the chain's end, which is known by its
checkpoint's number, if it is another copy's, and else by being that very state. Links that are
written count with the record that is written after them; where that fails, they never happened,
whatever is written beside them meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from holdfast.core.effects import ApplyCheckpoint
from holdfast.core.records import Checkpoint

# Changes are laid on the last whole state on disk; after so many of them, it is written anew.
_LONGEST_CHAIN = 8

Made = TypeVar("Made")
Link = TypeVar("Link")


def to_build_on(known: dict[int, Made], checkpoint: Checkpoint, made: Made) -> dict[int, Made]:
    """What the next checkpoints to another copy may build on: this one, its base, and the two
    before it."""
    newest = sorted(known)[-2:]
    kept = {number: each for number, each in known.items() if number in (*newest, checkpoint.base)}
    return {**kept, checkpoint.number: made}


class Bases(Generic[Made]):
    """What was made of the other copy's checkpoints on which the next one may build."""

    def __init__(self) -> None:
        self._made: dict[int, Made] = {}

    def of(self, checkpoint: Checkpoint) -> Made | None:
        """What its changes are laid on; None if it is whole."""
        return None if checkpoint.base is None else self._made[checkpoint.base]

    def add(self, order: ApplyCheckpoint, made: Made) -> None:
        """The order is carried out; its driver may go on from it, or from what it held before."""
        kept = {number: one for number, one in self._made.items() if number == order.held}
        self._made = {**kept, order.checkpoint.number: made}


class DiskEnd(Generic[Made]):
    """The state on disk, for those who would write only what has changed since."""

    def __init__(self) -> None:
        # None if nothing can be told as changes of it.
        self.state: Made | None = None
        # Which checkpoint of the other copy it is.
        self._number: int | None = None
        # Whether what the replica computes comes out of it.
        self._continues = False

    def found(self, state: Made | None) -> None:
        """A life begins with it."""
        self.state = state

    def begin(self, state: object) -> None:
        """What the replica computes from now on comes out of this state."""
        self._continues = state is not None and state is self.state

    @property
    def takes_own(self) -> bool:
        """Whether what the replica computes can be told as changes."""
        return self._continues

    def takes(self, checkpoint: Checkpoint) -> bool:
        """Whether the changes of a checkpoint are changes of what is on disk."""
        return checkpoint.base is not None and checkpoint.base == self._number

    def begins_to_write(self) -> None:
        """Until that is done, nothing can be laid on what is there."""
        self.state, self._number, self._continues = None, None, False

    def has_own(self, state: Made) -> None:
        """What the replica has computed is written."""
        self.state, self._number, self._continues = state, None, True

    def has_taken(self, number: int, state: Made) -> None:
        """What was made of a checkpoint is written."""
        self.state, self._number, self._continues = state, number, False


class Links(Generic[Link]):
    """The links of the chain on disk: those that count, and those that are written beside them."""

    def __init__(self, counted: Iterable[Link] = ()) -> None:
        self.counted = tuple(counted)
        self._written: tuple[Link, ...] | None = None

    @property
    def newest(self) -> tuple[Link, ...]:
        """Those that the next record makes count."""
        return self.counted if self._written is None else self._written

    @property
    def is_long(self) -> bool:
        """Whether it is time for a whole state; there may be none yet."""
        return not self.counted or len(self.counted) >= _LONGEST_CHAIN

    def write(self, links: Iterable[Link], whole: bool) -> None:
        """These are written; ``whole``: they begin with a whole state."""
        self._written = (*(() if whole else self.counted), *links)

    def call_off(self) -> None:
        """The record that was to make them count has failed."""
        self._written = None

    def count(self) -> None:
        """The record is there."""
        self.counted, self._written = self.newest, None
