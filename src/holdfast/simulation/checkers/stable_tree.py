"""Stable where possible: if a complete tree stands, its client gets stable results.

A tree is complete when every input of every fragment on it is provided by a process that
stands, over links that stand, up to every source. Once one has stood for long enough to
reconcile, the client's stable stream must keep up, whatever else is broken elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.consistency import NodeState
from holdfast.core.settings import SECOND_US
from holdfast.simulation.checkers import Violation
from holdfast.simulation.entry_process import EntryProcess

if TYPE_CHECKING:
    from holdfast.simulation.client_process import ClientProcess
    from holdfast.simulation.world import World


class StableTree:
    """Finds complete trees in a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._producers = world.producers
        self._sources = {entry.stream for entry in world.spec.entries}
        timing = world.spec.timing
        self._hop_us = timing.delay_us + 2 * timing.bucket_us + 4 * world.spec.job_us + 300_000
        self._hop_us += 2 * world.skew_us
        self._settle_us = max(8 * SECOND_US, world.spec.redo_us_after(world.schedule.longest_us))
        self._settle_us += 2 * timing.delay_us + timing.postpone_lease_us
        self._recovered_at: dict[str, int] = {}
        self._changes = -1
        self._trees: list[tuple[ClientProcess, int, int]] = []

    def sample(self) -> None:
        now = self._world.clock.now
        for address, process in self._world.replicas.items():
            replica = process.replica
            if process.paused or replica is None or replica.state is NodeState.RECOVERING:
                self._recovered_at[address] = now
                self._changes = -1
        if self._changes != self._world.changes:
            self._changes = self._world.changes
            self._trees = self._all_trees()
        for client, since, depth in self._trees:
            if now - since < depth * (self._settle_us + self._hop_us):
                continue
            if client.boundary < now - depth * self._hop_us:
                raise Violation(
                    "stable where possible",
                    f"{client.address} has {client.driver.stream} stable up to "
                    f"{client.boundary / 1e6:.3f} s, though a complete tree has stood since "
                    f"{since / 1e6:.3f} s; now {now / 1e6:.3f} s",
                )

    def _all_trees(self) -> list[tuple[ClientProcess, int, int]]:
        """The complete trees: the client, since when, how deep."""
        known: dict[tuple[str, str], tuple[int, int] | None] = {}
        found = []
        for client in self._world.clients.values():
            if client.running:
                tree = self._tree_to(client.address, client.driver.stream, known)
                if tree is not None:
                    found.append((client, max(tree[0], client.disturbed_at), tree[1]))
        return found

    def _tree_to(
        self, reader: str, stream: str, known: dict[tuple[str, str], tuple[int, int] | None]
    ) -> tuple[int, int] | None:
        """Since when the best tree to a reader has stood, and its depth."""
        best: tuple[int, int] | None = None
        for producer in self._producers[stream]:
            if producer in self._world.authority.gone:
                continue
            link_since = self._world.link_stands_since(producer, reader)
            if (producer, stream) not in known:
                known[producer, stream] = self._tree_at(producer, stream, known)
            tree = known[producer, stream]
            if link_since is not None and tree is not None:
                found = (max(tree[0], link_since), tree[1])
                best = found if best is None else min(best, found)
        return best

    def _tree_at(
        self, producer: str, stream: str, known: dict[tuple[str, str], tuple[int, int] | None]
    ) -> tuple[int, int] | None:
        process = self._world.processes[producer]
        if not process.running or process.slow:
            return None
        since = max(process.disturbed_at, self._recovered_at.get(producer, 0))
        if stream in self._sources:
            silent = isinstance(process, EntryProcess) and process.says_nothing
            return None if process.disk.full or silent else (since, 0)
        depth = 0
        if self._world.replicas[producer].replica is None:
            return None
        for one in self._world.replicas[producer].settings.inputs:
            tree = self._tree_to(producer, one.stream, known)
            if tree is None:
                return None
            since, depth = max(since, tree[0]), max(depth, tree[1])
        return since, depth + 1
