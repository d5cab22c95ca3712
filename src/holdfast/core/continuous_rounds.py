"""The continuous checkpoints of one replica: ``core.continuous`` between its jobs and its log.

A job of the stable version brings the states of windows that opened or changed; they go into the
log with its results. Then a round may begin, which reads states of older windows from the same
version, beside the next job. What a round has written must be in the log before what a later
state brings, so that the log is in the order of times: a stable job that is done while a round is
under way waits for its end.

A round has the number of the job whose state it reads, so that the answer to an order of an
earlier life means nothing to this one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.core.continuous import CecEffect, CecState, Checkpointer, Measured
from holdfast.core.effects import Line, ReadWindows
from holdfast.core.events import JobDone, WindowBlock, WindowsRead, WindowsTimed
from holdfast.core.frame import Header, StreamFrame
from holdfast.core.settings import Continuous, ReplicaSettings
from holdfast.core.versions import Running


@dataclass(frozen=True, slots=True)
class Read:
    """What follows from what was read.

    windows  states for the log.
    orders   what is to be read next.
    waiting  the job that has waited, if the round is over.
    """

    windows: tuple[WindowBlock, ...] = ()
    orders: tuple[ReadWindows, ...] = ()
    waiting: JobDone | None = None


def window_frames(windows: tuple[WindowBlock, ...], next_id: int) -> tuple[StreamFrame, ...]:
    """Window states as frames of a log that is at ``next_id``."""
    return tuple(
        StreamFrame(Header(one.kind, next_id, one.count, one.time, one.time), one.block)
        for one in windows
    )


class WindowRounds:
    """What of its windows a replica keeps in its log."""

    def __init__(self, owner: str, settings: Continuous, start: int) -> None:
        self.machine = Checkpointer(owner, settings, start)
        # The oldest window states that the newest stable state needs.
        self.extent = start
        self._round = 0
        # The state that it is about, and where that stands.
        self._state: object = None
        self._at = start
        self._waiting: JobDone | None = None
        self._begins: list[CecEffect] = []

    @classmethod
    def of(cls, settings: ReplicaSettings, start: int) -> WindowRounds | None:
        """For a replica that keeps its state in this way; None for others."""
        if settings.continuous is None:
            return None
        return cls(settings.address, settings.continuous, start)

    def note(self) -> tuple[tuple[str, int], ...]:
        """What a recovery would cost, to be written beside the window states."""
        machine = self.machine
        return (
            ("open_windows", machine.open_windows),
            ("extent_from", machine.extent_from),
            ("extent", machine.extent),
            ("replay_from", machine.replay_from),
            ("replay", machine.replay),
            ("recovery_us", machine.recovery_us),
        )

    def must_wait(self, done: JobDone, running: Running | None) -> bool:
        """Whether a job's result comes in the middle of a round, and waits for its end."""
        stable = running is not None and running.job == done.job and running.line is Line.STABLE
        if stable and self.machine.state is not CecState.IDLE:
            self._waiting = done
            return True
        return False

    def took(self, done: JobDone, running: Running | None, now: int) -> JobDone:
        """Note what a job says of windows; the job with the oldest input that is still needed."""
        if running is None or running.job != done.job or running.line is Line.LIVE:
            return done
        machine = self.machine
        if done.restored is not None:
            machine.restore(done.restored)
        if done.reached is not None:
            machine.handle(Measured(job_us=done.took_us, tuples=done.reached.inputs), now)
            self._begins = machine.handle(done.reached, now)
            self._round, self._state, self._at = done.job, done.state, running.stop
        self.extent = machine.extent_from
        marker = max(0, min(machine.replay_from, running.stop))
        return replace(done, marker=marker)

    def begin(self) -> list[ReadWindows]:
        """The round that begins with the state just taken."""
        begins, self._begins = self._begins, []
        return self._orders(begins)

    def read(self, event: WindowsRead | WindowsTimed, now: int) -> Read:
        """Take the answer to an order."""
        if isinstance(event, WindowsTimed):
            self.machine.handle(Measured(load_us=event.load_us), now)
            return Read()
        if event.round != self._round:
            return Read()
        orders = self._orders(self.machine.handle(event.answer, now))
        waiting = None
        if not orders:
            waiting, self._waiting = self._waiting, None
        return Read(event.windows, tuple(orders), waiting)

    def _orders(self, orders: list[CecEffect]) -> list[ReadWindows]:
        of = (self._round, self._state, self._at)
        return [ReadWindows(*of, order, self.note()) for order in orders]
