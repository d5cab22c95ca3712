"""A simulated client, and the application that it hands tuples to.

The application's sink is of one of two kinds. One that *rewinds* is cut back, after a crash, to
what it had when the client's place was last written down. One that *keeps the ids* has the id of
its last tuple in the same commit as the tuples: it may have more than the client's place says,
which then comes again and is left out. Either way, as in ``nodes/client_node``, the sink is made
durable first, then the place is written down, and only then is the client told that this much is
committed.

Without an order, what came early has no place: what is cut off is all beyond the client's place in
the stream in order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from holdfast.core.client import Client, ClientSettings
from holdfast.core.consumer import Consumer
from holdfast.core.effects import (
    DeliverBoundary,
    DeliverTuples,
    DeliverUndo,
)
from holdfast.core.events import Committed
from holdfast.core.frame import Header, Kind
from holdfast.core.settings import SECOND_US
from holdfast.core.unordered import make_client
from holdfast.simulation.checkers import Violation
from holdfast.simulation.executor import Row
from holdfast.simulation.process import Process

if TYPE_CHECKING:
    from holdfast.simulation.world import World

# How often an application makes durable what it has: at once, as one that commits with every
# event, or not so soon.
FLUSHES_US = (0, 100_000, 300_000, SECOND_US, 2 * SECOND_US)
# How long each step of that takes, at most; how soon it is tried again if there is no room.
STEP_US = 20_000
AGAIN_US = 200_000


@dataclass(frozen=True, slots=True)
class Place:
    """What a client writes down.

    next_id   the first id that it lacks.
    rows      how many rows the sink has.
    since     up to which time it has the stream.
    boundary  up to which time it was told to have everything.
    """

    next_id: int = 0
    rows: int = 0
    since: int = 0
    boundary: int = 0


class ClientProcess(Process):
    """A client whose application remembers everything it was told, but for what a crash takes."""

    driver: Client

    def __init__(self, world: World, settings: ClientSettings) -> None:
        super().__init__(world, settings.address)
        self.settings = settings
        self.lossy = settings.input.lossy
        self.unordered = settings.input.early
        # What the sink has, and up to which id this life of the client was handed the stream.
        self.stable: list[Row] = []
        self.next_id = 0
        self.boundary = 0
        self.tentative: list[Row] = []
        self.tentative_count = 0
        self.first_tentative_at: int | None = None
        # When tuples that came tentatively, for the first time, were made, and when they came.
        self.tentative_times: list[tuple[int, int]] = []
        self._shown: set[tuple[int, int]] = set()
        # Without an order: what came, each row once, and how much of it before its place was known.
        self.seen: set[Row] = set()
        self.early_count = 0
        # The same in order, as far as that has come.
        self._ordered: list[Row] = []
        # What is there after a crash. Chance of its own: other runs stay what they were.
        random = Random(f"{settings.address} {world.schedule.end}")
        self._random = random
        self._flush_us = random.choice(FLUSHES_US)
        self._keeps_ids = random.random() < 0.5 and not self.lossy and not self.unordered
        self._durable = 0
        self.place = Place()
        self._flushing = False
        self._since = 0
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

    @property
    def newest(self) -> Row | None:
        """The newest stable tuple that it was handed."""
        count = len(self.stable) if self.lossy else self.next_id
        return self.stable[count - 1] if count else None

    def make_driver(self) -> None:
        place = self.place
        saved = replace(self.settings, next_id=place.next_id, since=place.since)
        self.driver = make_client(saved)

    def start(self) -> None:
        super().start()
        self.world.authority.rescaling.tell_clients()

    def stop(self) -> None:
        """In order: what waits is made durable first."""
        if self.running and not self.disk.full:
            self.place = self._here()
            self._durable = len(self.stable)
        super().stop()

    def gone(self) -> None:
        """Cut off what is not there any more."""
        place = self.place
        if self.unordered:
            del self._ordered[place.next_id :]
            self.stable = list(self._ordered)
        else:
            del self.stable[self._durable if self._keeps_ids else place.rows :]
        self.seen = set(self.stable)
        self.next_id, self.boundary, self._since = place.next_id, place.boundary, place.since
        self.tentative.clear()
        self._flushing = False
        self.world.client_checks.begins_again(self)

    # -- what it is handed --------------------------------------------------------------

    def _undo(self, undo: DeliverUndo) -> None:
        self.tentative = [row for row in self.tentative if row[0] >= undo.below_stime]

    def _complete(self, complete: DeliverBoundary) -> None:
        self.boundary = complete.boundary
        self._since = max(self._since, complete.boundary)

    def _tuples(self, effect: DeliverTuples) -> None:
        block: tuple[Row, ...] = effect.block  # type: ignore[assignment]
        header = effect.header
        rows = [row for row in block[effect.skip :] if row[0] >= effect.stime_from]
        if self.unordered:
            choice = effect.choice
            chosen = [row for row in rows if choice is None or choice.takes(row[3], row[0])]
            self.world.early.came(self, header, chosen)
            self.stable += chosen
            self.seen.update(chosen)
            self.early_count += len(chosen) * (header.kind is Kind.EARLY)
            if header.kind is Kind.STABLE:
                self._ordered += rows
                self._reached(header)
        elif header.kind is Kind.STABLE:
            first_id = header.first_id + effect.skip
            self.world.client_checks.stable(self, first_id, rows)
            # What the sink has already, and the client does not know of, is left out.
            self.stable += rows[0 if self.lossy else len(self.stable) - first_id :]
            self._reached(header)
        else:
            self._show(effect, rows)

    def _show(self, effect: DeliverTuples, rows: list[Row]) -> None:
        self.world.client_checks.tentative(self, rows, effect.why)
        self.tentative += rows
        self.tentative_count += len(rows)
        shown = {(row[0], row[3]) for row in rows} - self._shown
        self._shown |= shown
        self.tentative_times += [(stime, self.world.clock.now) for stime, _ in shown]
        if rows and self.first_tentative_at is None:
            self.first_tentative_at = self.world.clock.now

    # -- what is there after a crash ------------------------------------------------------

    def _reached(self, header: Header) -> None:
        self.next_id = header.next_id
        self._since = max(self._since, header.stime_max + 1)
        if self.unordered and len(self._ordered) != self.next_id:
            raise Violation(
                "no loss, no duplicate",
                f"{self.address} has {len(self._ordered)} tuples in order, up to id {self.next_id}",
            )
        if not self._flushing:
            self._flushing = True
            self.world.clock.after(self._flush_us, self._flush, self.life)

    def _here(self) -> Place:
        return Place(self.next_id, len(self.stable), self._since, self.boundary)

    def _step_us(self) -> int:
        return 1 + int(self._random.random() * STEP_US)

    def _flush(self, life: int) -> None:
        """The sink has all it was handed; the client's place is next."""
        if life != self.life:
            return
        if self.paused or self.disk.full:
            self.world.clock.after(AGAIN_US, self._flush, life)
            return
        self._durable = max(self._durable, len(self.stable))
        self.world.clock.after(self._step_us(), self._note, life, self._here())

    def _note(self, life: int, place: Place) -> None:
        if life != self.life:
            return
        if self.disk.full:
            self.world.clock.after(AGAIN_US, self._flush, life)
            return
        self.place = place
        self.world.clock.after(self._step_us(), self._commit, life)

    def _commit(self, life: int) -> None:
        if life != self.life:
            return
        self._flushing = False
        self.receive(Committed(self.place.next_id))
        if self.next_id > self.place.next_id and self.up:
            self._flushing = True
            self.world.clock.after(self._flush_us, self._flush, life)
