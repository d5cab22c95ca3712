"""A version of a fragment: an engine and a current state, with the papers' words for both.

Two versions of one fragment can run side by side over one engine, from one state: that costs
nothing, because states are immutable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from holdfast.packed import PackedState
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.packing import pack, unpack
from holdfast.spark.state import EMPTY, State


class Version:
    """A fragment being advanced."""

    def __init__(self, engine: Engine, state: State = EMPTY) -> None:
        self.engine = engine
        self._state = state

    @property
    def boundary(self) -> int:
        """Everything older has been processed."""
        return self._state.boundary

    def advance(
        self, buckets: Sequence[Bucket], boundary: int | None = None
    ) -> Mapping[str, pa.Table]:
        """Process buckets; the tuples of each output, in order."""
        result = self.engine.advance(self._state, buckets, boundary)
        self._state = result.state
        return result.outputs

    def snapshot(self) -> State:
        """The current state; it stays valid while it is kept."""
        return self._state

    def restore(self, state: State) -> None:
        """Go back (or ahead) to a state of this engine."""
        self._state = state

    def clear(self) -> None:
        """Forget everything."""
        self._state = EMPTY

    def pack(self, since: State | None = None) -> PackedState:
        """The state as Arrow, whole or what changed since an earlier snapshot."""
        return pack(self.engine, self._state, since)

    def unpack(self, packed: PackedState) -> None:
        """Take over a packed state; changes are laid on the current state."""
        self._state = unpack(self.engine, packed, self._state)

    def oldest_contributing(self) -> int:
        """The oldest input tuple time that still shapes the state (the stream marker)."""
        return self.engine.oldest_contributing(self._state)
