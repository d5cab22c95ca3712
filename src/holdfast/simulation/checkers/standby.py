"""Standby: one of two copies runs, soon; what was confirmed is never lost.

Per protection, beyond what holds for everyone (no loss, no duplicate, the oracle's stream):

- hybrid: when a primary is gone, the other copy runs after a few heartbeats, and then owes
  what any running replica owes, the bound X included.
- passive: the same after more heartbeats, and once its engine is up; the bound X does not
  hold in between.
- A copy that holds a checkpoint never holds an older one later, in one life of its process;
  where checkpoints are persisted, in any.
- A secondary goes to sleep only next to a primary that is as far as it is.
- Nobody is primary of a term that is not its own.

Where checkpoints are only in memory, losing both copies loses their state. The fragment must
then say nothing wrong; that it says anything is no longer promised (``void``). The same holds
where disks are lost for good: whoever finds nothing on its disk, and is told that what it needs
is trimmed, stands still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.consistency import NodeState
from holdfast.core.detector import PeerState
from holdfast.core.messages import CopyState
from holdfast.core.settings import SECOND_US
from holdfast.simulation.checkers import Stall, Violation

if TYPE_CHECKING:
    from holdfast.simulation.protected_process import ProtectedProcess
    from holdfast.simulation.world import World


class StandbyChecks:
    """The pairs of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.void = False
        self._held: dict[str, tuple[int, int]] = {}
        self._confirmed: dict[str, int] = {}
        self._state: dict[str, CopyState] = {}
        self._alone_since: dict[str, int] = {}
        self._gone_since: dict[str, int] = {}

    def crashed(self, process: ProtectedProcess) -> None:
        """A copy is gone; was it the last that knew?"""
        self._state.pop(process.address, None)  # a start is no going to sleep
        if process.pair.persist:
            return
        other = self._other(process)
        if not other.up or other.copy.report().boundary < 0:
            self.void = True

    def forgot(self, process: ProtectedProcess) -> None:
        """A copy that is down has lost its disk; is there another that knows?"""
        self._confirmed.pop(process.address, None)
        other = self._other(process)
        if other.disk.record is None and not (other.up and other.copy.report().boundary >= 0):
            self.void = True

    def confirmed(self, process: ProtectedProcess) -> None:
        """A copy says that it has taken a checkpoint."""
        held = process.copy.held
        if not process.pair.persist or held is None:
            return
        kept = process.disk.record
        if kept is None or kept.boundary < held[0].boundary:
            raise Violation("standby", f"{process.address} confirms what is not on disk")
        self._confirmed[process.address] = held[0].boundary

    def after(self, process: ProtectedProcess) -> None:
        """After every event of a copy."""
        self._check_held(process)
        before, state = self._state.get(process.address), process.copy.state
        if state is before:
            return
        self._state[process.address] = state
        self._world.changes += 1
        if before is CopyState.AWAKE and state is CopyState.SUSPENDED:
            self._check_sleep(process)

    def sample(self) -> None:
        for process in self._world.copies.values():
            self._check_awake(process)
            self._check_notices(process)

    def _other(self, process: ProtectedProcess) -> ProtectedProcess:
        return self._world.copies[process.pair.partner_of(process.address)]

    def _check_held(self, process: ProtectedProcess) -> None:
        held = process.copy.held
        if held is None or process.copy.replica is not None:
            return
        life, before = self._held.get(process.address, (process.life, -1))
        if life == process.life and held[0].boundary == before:
            return
        if life != process.life:
            before = self._confirmed.get(process.address, -1)
        if held[0].boundary < before:
            raise Violation(
                "standby",
                f"{process.address} holds {held[0].boundary / 1e6:.3f} s, though it has held "
                f"{before / 1e6:.3f} s",
            )
        self._held[process.address] = (process.life, held[0].boundary)

    def _check_sleep(self, process: ProtectedProcess) -> None:
        other = self._other(process)
        # What the primary said was true a moment ago; one that was hit since may be elsewhere.
        if not other.up or self._world.clock.now - other.disturbed_at < SECOND_US:
            return
        slack_us = 2 * self._world.spec.timing.bucket_us + SECOND_US
        mine, theirs = process.copy.report().boundary, other.copy.report().boundary
        if theirs + slack_us < mine:
            raise Violation(
                "standby",
                f"{process.address} sleeps at {mine / 1e6:.3f} s, the primary is at "
                f"{theirs / 1e6:.3f} s",
            )

    def _check_awake(self, process: ProtectedProcess) -> None:
        """Somebody runs, a few heartbeats after the other is gone."""
        now = self._world.clock.now
        other = self._other(process)
        usable = process.running and not process.slow and not self.void
        usable = usable and (process.pair.persist or process.copy.report().boundary >= 0)
        if not usable or other.running or process.replica is not None:
            self._alone_since[process.address] = now
            return
        pair = process.pair
        allowed = (pair.misses_until_awake + 2) * pair.heartbeat_interval_us + SECOND_US
        if process.copy.switch.heard_at is None:
            allowed += pair.promote_after_us
        since = max(
            self._alone_since.get(process.address, now), process.disturbed_at, other.disturbed_at
        )
        if now - since > allowed:
            raise Violation(
                "standby",
                f"{process.address} still sleeps {(now - since) / 1e6:.3f} s after "
                f"{other.address} was lost\n{process.copy.switch.story()}",
            )

    def _check_notices(self, process: ProtectedProcess) -> None:
        """A copy whose other is gone knows it, whatever it tries to send there."""
        now, other = self._world.clock.now, self._other(process)
        if not process.running or process.slow or other.up:
            self._gone_since[process.address] = now
            return
        pair = process.pair
        disturbed_at = max(process.disturbed_at, other.disturbed_at)
        since = max(self._gone_since.get(process.address, now), disturbed_at)
        allowed = (pair.misses_until_awake + 4) * pair.heartbeat_interval_us + SECOND_US
        if now - since > allowed and process.copy.detector.state is PeerState.UP:
            raise Violation(
                "standby",
                f"{process.address} takes {other.address} for alive {(now - since) / 1e6:.3f} s "
                f"after it was lost\n{process.copy.detector.story()}",
            )

    def check_end(self) -> None:
        """Once all is well: one primary, and the other not far behind."""
        world = self._world
        for process in world.copies.values():
            other = self._other(process)
            states = (process.copy.state, other.copy.state)
            if set(states) != {CopyState.PRIMARY, CopyState.SUSPENDED}:
                raise Stall(
                    "standby",
                    f"{process.address} and {other.address} end as {states}\n"
                    f"{process.copy.switch.story()}\n{other.copy.switch.story()}",
                )
            replica = process.replica
            if replica is None:
                behind = world.clock.now - process.copy.report().boundary
                if behind > world.spec.timing.delay_us * (2 + len(world.spec.fragments)):
                    raise Stall(
                        "standby",
                        f"{process.address} holds a checkpoint {behind / 1e6:.3f} s old\n"
                        f"{other.copy.checkpointer.story()}",
                    )
            elif replica.state is not NodeState.STABLE:
                raise Stall("standby", f"{process.address} ends {replica.state.name}")
