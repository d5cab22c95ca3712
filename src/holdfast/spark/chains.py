"""Packed states one laid on the other: how a copy that runs no Spark holds a state.

A copy with an engine unpacks what comes onto the state it has, at once; one without an engine
keeps the chain (``holdfast.packed``) until it needs the state.
A handle is what the protocols carry around: a State, a chain, or None for the empty state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from holdfast.packed import Chain, PackedState
from holdfast.spark.engine import Engine
from holdfast.spark.merging import Merge, MergeEngine
from holdfast.spark.packing import pack, unpack
from holdfast.spark.rejected import STOP
from holdfast.spark.state import EMPTY, State

if TYPE_CHECKING:
    from holdfast.network import Network

# A state that only takes changes is merged when one of its lists has more runs.
MOST_RUNS = 32

Handle: TypeAlias = State | Chain | None


class Workshop:
    """The engine of one fragment, made when it is first needed."""

    def __init__(
        self, load: Callable[[], Network | Merge], directory: Path, on_error: str = STOP
    ) -> None:
        """``load`` gives the fragment's network; it may start Spark, which takes seconds.

        Of a fragment that merges shards it gives what it merges, which needs no Spark.
        """
        self._on_error = on_error
        self._load = load
        self._directory = directory
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._unpacked: tuple[Chain, State] | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is an engine."""
        return self._engine is not None

    def engine(self) -> Engine:
        with self._lock:
            if self._engine is None:
                found = self._load()
                if isinstance(found, Merge):
                    self._engine = MergeEngine(found)
                else:
                    self._engine = Engine(found, self._directory, on_error=self._on_error)
            return self._engine

    def state(self, handle: Handle) -> State:
        """The state a job can start from; the same object for the same chain."""
        if handle is None:
            return EMPTY
        if isinstance(handle, State):
            return handle
        with self._lock:
            if self._unpacked is None or self._unpacked[0] is not handle:
                state = EMPTY
                for packed in handle:
                    state = unpack(self.engine(), packed, state)
                self._unpacked = (handle, state)
            return self._unpacked[1]

    def lay(self, chain: Chain, base: Handle) -> Handle:
        """What ``chain`` stands for: whole, or laid on ``base``; unpacked if there is an engine."""
        whole = chain[0].since is None
        if not self.is_open:
            under: Chain = () if whole or not isinstance(base, tuple) else base
            return (*under, *chain)
        state = EMPTY if whole else self.state(base)
        for packed in chain:
            state = unpack(self.engine(), packed, state)
        return self._merged(state)

    def _merged(self, state: State) -> State:
        """The same state in fewer runs, if changes have piled up: no advance merges them here."""
        lists = [
            runs
            for families in state.runs.values()
            for partitions in families.values()
            for runs in partitions
        ]
        if max(map(len, lists), default=0) <= MOST_RUNS:
            return state
        return unpack(self.engine(), pack(self.engine(), state))

    def pack(
        self,
        handle: Handle,
        since: Handle,
        whole: bool,
        breathe: Callable[[], None] | None = None,
    ) -> Chain:
        """A state for the wire or the disk: whole, or what changed since an earlier one."""
        if handle is None and whole:
            return (PackedState(EMPTY.version, EMPTY.boundary, None, ()),)
        if isinstance(handle, tuple) and not self.is_open:
            return handle
        before = None if whole else self.state(since)
        return (pack(self.engine(), self.state(handle), before, breathe),)

    def close(self) -> None:
        with self._lock:
            if self._engine is not None:
                self._engine.close()
