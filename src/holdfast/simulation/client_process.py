"""A simulated client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.client import Client, ClientSettings
from holdfast.core.consumer import Consumer
from holdfast.core.effects import (
    DeliverBoundary,
    DeliverTuples,
    DeliverUndo,
)
from holdfast.core.unordered import make_client
from holdfast.simulation.executor import Row
from holdfast.simulation.process import Process

if TYPE_CHECKING:
    from holdfast.simulation.world import World


class ClientProcess(Process):
    """A client whose application remembers everything it was told."""

    driver: Client

    def __init__(self, world: World, settings: ClientSettings) -> None:
        super().__init__(world, settings.address)
        self.settings = settings
        self.stable: list[Row] = []
        self.tentative: list[Row] = []
        self.tentative_count = 0
        self.first_tentative_at: int | None = None
        # When tuples that came tentatively, for the first time, were made, and when they came.
        self.tentative_times: list[tuple[int, int]] = []
        self._shown: set[tuple[int, int]] = set()
        self.boundary = 0
        # Without an order: what came, each row once, and how much of it before its place was known.
        self.unordered = settings.input.early
        self.seen: set[Row] = set()
        self.early_count = 0
        self.orders |= {
            DeliverTuples: self._tuples,
            DeliverUndo: self._undo,
            DeliverBoundary: self._complete,
        }

    @property
    def stream(self) -> str:
        """The stream it reads."""
        return self.settings.input.stream

    @property
    def consumer(self) -> Consumer:
        return self.driver.consumer

    def make_driver(self) -> None:
        self.driver = make_client(self.settings)

    def _undo(self, undo: DeliverUndo) -> None:
        self.tentative = [row for row in self.tentative if row[0] >= undo.below_stime]

    def _complete(self, complete: DeliverBoundary) -> None:
        self.boundary = complete.boundary

    def _tuples(self, effect: DeliverTuples) -> None:
        block: tuple[Row, ...] = effect.block  # type: ignore[assignment]
        rows = [row for row in block[effect.skip :] if row[0] >= effect.stime_from]
        if self.unordered:
            choice = effect.choice
            rows = [row for row in rows if choice is None or choice.takes(row[3], row[0])]
            self.world.early.came(self, effect.header, rows)
            self.stable += rows
            self.seen.update(rows)
            self.early_count += len(rows) * (effect.header.kind is effect.header.kind.EARLY)
        elif effect.header.kind is effect.header.kind.STABLE:
            first_id = effect.header.first_id + effect.skip
            self.world.client_checks.stable(self, first_id, rows)
            self.stable += rows
        else:
            self.world.client_checks.tentative(self, rows, effect.why)
            self.tentative += rows
            self.tentative_count += len(rows)
            shown = {(row[0], row[3]) for row in rows} - self._shown
            self._shown |= shown
            self.tentative_times += [(stime, self.world.clock.now) for stime, _ in shown]
            if rows and self.first_tentative_at is None:
                self.first_tentative_at = self.world.clock.now
