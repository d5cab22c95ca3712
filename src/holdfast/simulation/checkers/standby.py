"""Standby: one of the copies runs, soon; what was confirmed is never lost.

Per protection, beyond what holds for everyone (no loss, no duplicate, the oracle's stream):

- hybrid: when a primary is gone, another copy runs after a few heartbeats, and then owes
  what any running replica owes, the bound X included.
- passive: the same after more heartbeats, and once its engine is up; the bound X does not
  hold in between.
- A copy that holds a checkpoint never holds an older one later, in one life of its process;
  where checkpoints are persisted, in any.
- A secondary goes to sleep only next to a primary that is as far as it is.
- Nobody is primary of a term that is not its own.

- Who has taken several checkpoints of a primary, one after the other, is sent changes by it.
- Where the first copy is at home, it is the primary once all has been well for a while.

Where checkpoints are only in memory, losing all copies loses their state. The fragment must
then say nothing wrong; that it says anything is no longer promised (``void``). The same holds
where disks are lost for good: whoever finds nothing on its disk, and is told that what it needs
is trimmed, stands still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.consistency import NodeState
from holdfast.core.detector import PeerState
from holdfast.core.messages import CopyState
from holdfast.core.settings import SECOND_US, Delivery
from holdfast.simulation.authority import known_to
from holdfast.simulation.checkers import Stall, Violation

if TYPE_CHECKING:
    from holdfast.simulation.protected_process import ProtectedProcess
    from holdfast.simulation.world import World


# How many whole checkpoints one may take before its sender builds on one that it holds.
WHOLE_MAX = 4


class StandbyChecks:
    """The copies of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.void = False
        self._held: dict[str, tuple[int, int]] = {}
        self._confirmed: dict[str, int] = {}
        self._state: dict[str, CopyState] = {}
        self._alone_since: dict[str, int] = {}
        self._gone_since: dict[tuple[str, str], int] = {}
        # (primary, copy): what the copy has taken while the primary knew nothing that it holds.
        self._whole: dict[tuple[str, str], set[int]] = {}

    def crashed(self, process: ProtectedProcess) -> None:
        """A copy is gone; was it the last that knew?"""
        self._state.pop(process.address, None)  # a start is no going to sleep
        if process.pair.persist or process.address in self._world.authority.gone:
            return
        if process.copy.lossy:
            return  # there was nothing to know
        if not any(one.up and one.copy.report().boundary >= 0 for one in self._others(process)):
            self.void = True

    def forgot(self, process: ProtectedProcess) -> None:
        """A copy that is down has lost its disk; is there another that knows?"""
        self._confirmed.pop(process.address, None)
        if process.address in self._world.authority.gone:
            return
        if process.settings.delivery is Delivery.AT_MOST_ONCE:
            return  # there was nothing on it
        others = self._others(process)
        held = any(one.up and one.copy.report().boundary >= 0 for one in others)
        if not held and all(one.disk.record is None for one in others):
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
            for other in self._others(process):
                self._check_notices(process, other)
                self._check_builds_on(process, other)

    def _others(self, process: ProtectedProcess) -> list[ProtectedProcess]:
        copies = self._world.copies
        names = process.pair.others_than(process.address)
        # A place may be empty for a while.
        return [copies[name] for name in names if name in copies]

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
        others, now = self._others(process), self._world.clock.now
        # What the primary said was true a moment ago; one that was hit since may be elsewhere.
        if any(not one.up or now - one.disturbed_at < SECOND_US for one in others):
            return
        slack_us = 2 * self._world.spec.timing.bucket_us + SECOND_US
        mine = process.copy.report().boundary
        running = [one.copy.report().boundary for one in others if one.replica is not None]
        theirs = max(running, default=-1)
        if theirs + slack_us < mine:
            raise Violation(
                "standby",
                f"{process.address} sleeps at {mine / 1e6:.3f} s, whoever runs is at "
                f"{theirs / 1e6:.3f} s",
            )

    def _check_awake(self, process: ProtectedProcess) -> None:
        """Somebody runs, a few heartbeats after the primary is gone, whoever else is."""
        now, pair = self._world.clock.now, process.pair
        others = self._others(process)
        usable = process.running and not process.slow and not self.void
        begins = process.copy.lossy or (pair.persist and process.settings.begins_empty)
        usable = usable and (begins or process.copy.report().boundary >= 0)
        # Who has not heard that the primary is gone waits for it as for one that is lost.
        newest = self._world.authority.membership.epoch
        usable = usable and known_to(process).epoch == newest
        if not usable or process.replica is not None or self._is_stood_in_for(process):
            self._alone_since[process.address] = now
            return
        allowed = (pair.misses_until_awake + 2) * pair.heartbeat_interval_us + SECOND_US
        if process.copy.switch.heard_at is None:
            allowed += pair.promote_after_us
        allowed += len(others[1:]) * (pair.misses_until_awake + 2) * pair.heartbeat_interval_us
        disturbed_at = max(one.disturbed_at for one in (process, *others))
        # What was sent before may come late, and counts as a word of who sent it.
        since = max(self._alone_since.get(process.address, now), disturbed_at, process.told_at)
        if now - since > allowed:
            raise Violation(
                "standby",
                f"{process.address} still sleeps {(now - since) / 1e6:.3f} s after the primary "
                f"was lost\n{process.copy.switch.story()}",
            )

    def _is_stood_in_for(self, process: ProtectedProcess) -> bool:
        """Whether this copy may sleep on: the primary is there, or another one runs."""
        primary = process.pair.primary_of(process.copy.switch.term)
        return any(
            one.running and (one.address == primary or one.replica is not None or one.slow)
            for one in self._others(process)
        )

    def _check_notices(self, process: ProtectedProcess, other: ProtectedProcess) -> None:
        """A copy knows that another is gone, whatever it tries to send there."""
        now, both = self._world.clock.now, (process.address, other.address)
        if not process.running or process.slow or other.up:
            self._gone_since[both] = now
            return
        pair = process.pair
        disturbed_at = max(process.disturbed_at, other.disturbed_at)
        # What waited for a link comes once that is whole, also of one who is gone meanwhile.
        whole_since = self._world.link_stands_since(other.address, process.address) or 0
        since = max(self._gone_since.get(both, now), disturbed_at, whole_since)
        allowed = (pair.misses_until_awake + 4) * pair.heartbeat_interval_us + SECOND_US
        if other.address not in process.copy.others:
            return  # it has not heard of it
        watch = process.copy.others[other.address].detector
        if now - since > allowed and watch.state is PeerState.UP:
            raise Violation(
                "standby",
                f"{process.address} takes {other.address} for alive {(now - since) / 1e6:.3f} s "
                f"after it was lost\n{watch.story()}",
            )

    def _check_builds_on(self, process: ProtectedProcess, other: ProtectedProcess) -> None:
        """A primary learns what a copy holds that takes its checkpoints, however late."""
        both = (process.address, other.address)
        known = process.copy.others.get(other.address) if process.running else None
        primary = process.running and process.copy.state is CopyState.PRIMARY
        asleep = other.running and other.copy.state is CopyState.SUSPENDED
        stands = self._world.link_stands_since(*both, late=True) is not None
        if not (primary and asleep and stands and known) or known.checkpointer.base is not None:
            self._whole.pop(both, None)
            return
        taken = self._whole.setdefault(both, set())
        if other.copy.base is not None and process.has_shipped(other.copy.base):
            taken.add(other.copy.base)
        if len(taken) > WHOLE_MAX:
            raise Violation(
                "standby",
                f"{other.address} has taken {len(taken)} whole checkpoints of {process.address}, "
                f"which builds on none of them\n{known.checkpointer.story()}",
            )

    def check_end(self) -> None:
        """Once all is well: one primary, and the others not far behind."""
        for pair in {one.pair.copies: one.pair for one in self._world.copies.values()}.values():
            if not {*pair.copies} <= self._world.copies.keys():
                raise Stall("standby", f"a place among {pair.copies} is empty")
            copies = [self._world.copies[name] for name in pair.copies]
            primaries = [one for one in copies if one.copy.state is CopyState.PRIMARY]
            asleep = [one for one in copies if one.copy.state is CopyState.SUSPENDED]
            if len(primaries) != 1 or len(asleep) != len(copies) - 1:
                states = ", ".join(f"{one.address} {one.copy.state.value}" for one in copies)
                stories = "\n".join(one.copy.switch.story() for one in copies)
                raise Stall("standby", f"the copies end as {states}\n{stories}")
            self._check_primary(primaries[0])
            for one in () if primaries[0].copy.lossy else asleep:
                self._check_fresh(one, primaries[0])

    def _check_primary(self, process: ProtectedProcess) -> None:
        assert process.replica is not None
        if process.replica.state is not NodeState.STABLE:
            raise Stall("standby", f"{process.address} ends {process.replica.state.name}")
        if process.pair.returns and process.pair.copies[0] != process.address:
            raise Stall(
                "standby",
                f"{process.address} ends as the primary, and not {process.pair.copies[0]}, which "
                f"is at home\n{process.copy.switch.story()}",
            )

    def _check_fresh(self, process: ProtectedProcess, primary: ProtectedProcess) -> None:
        world = self._world
        behind = world.clock.now - process.copy.report().boundary
        if behind > world.spec.timing.delay_us * (2 + len(world.spec.fragments)):
            raise Stall(
                "standby",
                f"{process.address} holds a checkpoint {behind / 1e6:.3f} s old\n"
                f"{primary.copy.others[process.address].checkpointer.story()}",
            )
