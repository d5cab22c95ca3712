"""A simulated replica that sends its checkpoints to others, and takes theirs.

What travels is packed here as the product packs it: a checkpoint with a base is only good for a
receiver that has exactly the state its sender thinks it has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.core.continuous_rounds import window_frames
from holdfast.core.effects import Append, ApplyCheckpoint, Send, StartOver
from holdfast.core.events import (
    Appended,
    CheckpointApplied,
    CheckpointFailed,
    CheckpointNotSent,
    Event,
)
from holdfast.core.frame import StreamFrame
from holdfast.core.laying import Bases, to_build_on
from holdfast.core.messages import CheckpointShipped, CheckpointTaken, JoinRequest
from holdfast.core.records import Checkpoint, InLog, LoggedStream, Pieces
from holdfast.core.settings import Keeping, ReplicaSettings
from holdfast.simulation import continuous as windows
from holdfast.simulation.checkers import Violation
from holdfast.simulation.executor import Computation
from holdfast.simulation.packed_states import Chain, Kept, Packed, lay
from holdfast.simulation.replica_process import ReplicaProcess

if TYPE_CHECKING:
    from holdfast.simulation.world import World


class CheckpointingProcess(ReplicaProcess):
    """A replica with partners, which may have to join, and lends its state to those that do."""

    def __init__(
        self, world: World, settings: ReplicaSettings, plan: Computation, job_us: int
    ) -> None:
        super().__init__(world, settings, plan, job_us)
        self._ships_at = 0
        self._forget()
        self.orders |= {ApplyCheckpoint: self._apply, StartOver: lambda order: self._start_over()}

    def _forget(self) -> None:
        self._arrives_at = 0
        # To whom which states went out, and where the log ended, by the numbers of checkpoints.
        self._states: dict[str, dict[int, object]] = {}
        self._ends: dict[str, dict[int, StreamFrame | None]] = {}
        self._shipped: set[int] = set()
        self._bases: Bases[Chain] = Bases()
        # What was made of the checkpoint that is being applied.
        self._made: Chain = ()
        self._held: set[int] = set()

    def has_shipped(self, number: int) -> bool:
        """Whether a checkpoint went out in this life."""
        return number in self._shipped

    @property
    def has_engine(self) -> bool:
        """Whether what comes is laid on what there is at once."""
        return True

    def make_driver(self) -> None:
        self._forget()
        super().make_driver()

    def receive(self, event: Event) -> None:
        if isinstance(event, CheckpointApplied):
            self._held.add(event.number)
            machine = self.driver.joining if self.up else None
            self._held |= set() if machine is None else {number for _, number in machine.lent}
        super().receive(event)

    def _start_over(self) -> None:
        """What it has nobody can go on from: it will find none of it, and join."""
        self.disk.start_over()
        self._end()

    # -- disk ---------------------------------------------------------------------------

    def packed(self, order: Append | ApplyCheckpoint) -> Kept | None:
        if isinstance(order, Append):
            return super().packed(order)
        self.take(order)
        if self.settings.keeping is not Keeping.STATE:
            return None
        return self.disk.packed.taken(order.checkpoint, self._made, self.has_engine)

    def take(self, order: ApplyCheckpoint) -> None:
        """Make a state of a checkpoint."""
        checkpoint = order.checkpoint
        if isinstance(checkpoint.state, Packed):
            self._made = lay(self._bases, checkpoint, self.has_engine, self.address)

    def done(self, order: Append | ApplyCheckpoint) -> Event:
        if isinstance(order, Append):
            return Appended(order.append)
        checkpoint = order.checkpoint
        if isinstance(checkpoint.state, LoggedStream):
            return CheckpointApplied(checkpoint.number, InLog(checkpoint.record))
        self._bases.add(order, self._made)
        return CheckpointApplied(checkpoint.number, self._made[-1].state)

    def not_done(self, order: Append | ApplyCheckpoint, taken: tuple[str, ...]) -> Event:
        if isinstance(order, Append):
            return super().not_done(order, taken)
        return CheckpointFailed(order.checkpoint.number, "the disk is full")

    # -- checkpoints --------------------------------------------------------------------

    def _send(self, send: Send) -> None:
        message = send.message
        if isinstance(message, CheckpointShipped):
            # They are packed and sent by a thread of their own, one after the other.
            self._ships_at = max(self._ships_at, self.world.clock.now + self.pack_us())
            self.world.clock.at(self._ships_at, self._ship, self.life, send.to, message.checkpoint)
            return
        if isinstance(message, CheckpointTaken):
            if message.number not in self._held:
                raise Violation("standby", f"{self.address} confirms what it does not hold")
            self.confirmed()
        elif isinstance(message, JoinRequest):
            self.world.joins.asked(self, message)
        super()._send(send)

    def pack_us(self) -> int:
        """How long it takes to pack a checkpoint."""
        return 0

    def _ship(self, life: int, to: str, sent: Checkpoint) -> None:
        if life != self.life:
            return
        if not self.world.processes[to].up:
            # Nobody listens there.
            lost = CheckpointNotSent(sent.number, "cannot be reached")
            self.world.clock.after(1_000, self.receive_in_life, self.life, lost)
        elif isinstance(sent.state, InLog):
            self._send_piece(to, sent)
        else:
            known = self._states.get(to, {})
            base = None if sent.base is None else known.get(sent.base)
            whole = sent.base not in known
            packed = Packed(whole, base, sent.state, sent.record.boundary)
            self._states[to] = to_build_on(known, sent, sent.state)
            self._transfer(to, replace(sent, state=packed), whole)

    def confirmed(self) -> None:
        """A checkpoint is held, and its sender is told."""
        self.world.joins.joined(self)

    def _send_piece(self, to: str, sent: Checkpoint) -> None:
        """With continuous checkpoints the log has the state: what of it the record needs."""
        stream = self.settings.outputs[0].stream
        known = self._ends.get(to, {})
        after = None if sent.base is None else known.get(sent.base)
        piece = self.disk.piece(stream, sent.record, after)
        if piece is None:
            gone = CheckpointNotSent(sent.number, "the log has not got it any more")
            self.world.clock.after(200, self.receive_in_life, self.life, gone)
            return
        self._ends[to] = to_build_on(known, sent, self.disk.end(stream))
        self._transfer(to, replace(sent, state=piece), sent.base not in known)

    def _transfer(self, to: str, packed: Checkpoint, whole: bool) -> None:
        """Send what is packed; a whole one may be large, and what follows it waits."""
        self._shipped.add(packed.number)
        send = Send(to, CheckpointShipped(packed))
        takes_us = self.world.whole_us if whole else 0
        self._arrives_at = max(self._arrives_at, self.world.clock.now + takes_us)
        if self._arrives_at <= self.world.clock.now:
            super()._send(send)
        else:
            self.world.clock.at(self._arrives_at, self._arrive, self.life, send)

    def _arrive(self, life: int, send: Send) -> None:
        if life == self.life:
            super()._send(send)

    def _apply(self, order: ApplyCheckpoint) -> None:
        checkpoint = order.checkpoint
        if isinstance(checkpoint.state, Pieces):
            states = [one.state for one in checkpoint.state.states if isinstance(one, Packed)]
            united = self._united(self.plan.united(states), checkpoint.record.boundary)
            order = replace(order, checkpoint=replace(checkpoint, state=united))
        self._order_disk(order)

    def _united(self, state: object, at: int) -> Packed | LoggedStream:
        if self.settings.keeping is Keeping.WINDOWS:
            return self._logged(state, at)
        return Packed(True, None, state, at)

    def _logged(self, state: object, at: int) -> LoggedStream:
        """What the log is to have of a state that was taken over: all windows, at its boundary."""
        blocks, _ = windows.news(self.plan, None, state, at, 1, 0)
        stream = self.settings.outputs[0].stream
        return LoggedStream(stream, at, window_frames(blocks, at))
