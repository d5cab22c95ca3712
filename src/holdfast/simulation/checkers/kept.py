"""Kept: what is on disk is enough to go on from, whenever a process is lost.

- Nobody has acknowledged input that its record on disk needs: its producers may have trimmed it.
- With continuous checkpoints the log has a state of every window that was open at the record's
  boundary, in whatever was taken from another copy, too.
- No log goes on after a gap of which somebody still needs something.
- Where tentative tuples beyond a bound are dropped, no more than that is kept of them for long.
- Who ends in order has all that it has published in its logs, if its disk is well. Where all
  replicas of a fragment have noted that and no note is beyond the logs, no reader is (``ending``).
- With a bound on what a recovery computes again, that stays about as small as it is meant to be
  while nothing is wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.core.consistency import NodeState
from holdfast.core.continuous import Checkpointer
from holdfast.core.effects import Append
from holdfast.core.serving import ServedStream
from holdfast.core.settings import SECOND_US, Keeping, Then
from holdfast.simulation import continuous
from holdfast.simulation.checkers import Violation
from holdfast.simulation.checkers.ending import Endings

if TYPE_CHECKING:
    from holdfast.simulation.protected_process import ProtectedProcess
    from holdfast.simulation.replica_process import ReplicaProcess
    from holdfast.simulation.world import World

# How long a replay may be too long, and after a disturbance.
_PATIENCE_US = 10 * SECOND_US
# Bounds are looked at once a second.
_LOOKS_US = 4 * SECOND_US


def check_gap(address: str, append: Append, served: Mapping[str, ServedStream]) -> None:
    """A log may go on at an id if everybody has what lies before it."""
    for stream, first_id in append.begins:
        needed = served[stream].first_id
        if first_id > needed:
            raise Violation(
                "kept",
                f"the log of {stream} at {address} is to go on at {first_id}, whatever it lacks, "
                f"and somebody needs {needed}",
            )


class KeptChecks:
    """The disks of all replicas of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._bounded_at: dict[str, int] = {}
        self._within_at: dict[str, int] = {}
        # Of each stream of each life: how many tentative frames had come, and when that was seen.
        self._seen: dict[tuple[str, int, str], deque[tuple[int, int]]] = {}
        self._endings = Endings(world)

    def confirmed(self, process: ProtectedProcess) -> None:
        """A copy says that it has taken a checkpoint."""
        self._check_windows(process)

    def crashed(self, process: ReplicaProcess) -> None:
        """A process is gone; its disk is what it was."""
        if self._world.standby.void or process.disk_lost or not process.persists:
            return
        self._endings.down(process)
        driver = process.driver
        acks = driver.acks if driver.replica is None else driver.replica.consumer.acks
        record = process.disk.record
        if record is None:
            return  # it begins anew, or joins
        needed = dict(record.inputs)
        for stream, first_needed in acks.items():
            if first_needed > needed.get(stream, 0):
                raise Violation(
                    "kept",
                    f"{process.address} has acknowledged {stream} below {first_needed}, but its "
                    f"record on disk goes on from {needed.get(stream, 0)}",
                )
        self._check_windows(process)

    def ending(self, process: ReplicaProcess) -> None:
        """A process ends in order; its disk may still be writing."""
        self._endings.ending(process)

    def ended(self, process: ReplicaProcess) -> None:
        """And its disk has done all that it was told."""
        if not self._world.standby.void and process.persists:
            self._endings.ended(process)

    def _check_windows(self, process: ReplicaProcess) -> None:
        record = process.disk.record
        if record is None or process.settings.keeping is not Keeping.WINDOWS:
            return
        log = process.disk.windows(process.settings.outputs[0].stream)
        missing = continuous.missing(process.plan, record, log, self._world.truth.rows)
        if missing:
            raise Violation(
                "kept",
                f"{process.address} has a record of {record.boundary / 1e6:.3f} s on disk and no "
                f"state of {sorted(missing)}, open then",
            )

    def sample(self) -> None:
        for address, process in self._world.replicas.items():
            if not self._exceeds(process):
                self._bounded_at[address] = self._world.clock.now
            elif self._world.clock.now - self._bounded_at.get(address, 0) > _PATIENCE_US:
                raise Violation("kept", f"{address} would compute more again than it is meant to")
            self._look_at_tentative(process)

    def _look_at_tentative(self, process: ReplicaProcess) -> None:
        now, address = self._world.clock.now, process.address
        # What comes right before a pause is noted after it, by its process and here.
        looks = process.settings.bounds and process.running
        seen = self._seen_first(process, now) if looks else {}
        if not process.running or process.slow or not _keeps_too_much(process, seen, now):
            self._within_at[address] = now
        elif now - self._within_at.get(address, 0) > _LOOKS_US:
            raise Violation("kept", f"{address} keeps tentative tuples beyond its bound")

    def _seen_first(self, process: ReplicaProcess, now: int) -> Mapping[str, int]:
        """When the oldest tentative frame of each stream was seen first."""
        oldest = {}
        for stream, served in process.driver.served.items():
            seen = self._seen.setdefault((process.address, process.life, stream), deque())
            gone = served.tentative_come - len(served.tentative)
            while seen and seen[0][0] <= gone:
                seen.popleft()
            if not seen or seen[-1][0] < served.tentative_come:
                seen.append((served.tentative_come, now))
            oldest[stream] = seen[0][1]
        return oldest

    def _exceeds(self, process: ReplicaProcess) -> bool:
        replica, settings = process.replica, process.settings.continuous
        if replica is None or replica.windows is None or settings is None:
            return False
        undisturbed_us = self._world.clock.now - process.disturbed_at
        well = replica.state is NodeState.STABLE and undisturbed_us > _PATIENCE_US
        if settings.replay is None or not well or not process.running or process.slow:
            return False
        return replica.windows.machine.replay > _allowed(replica.windows.machine, settings.replay)


def _keeps_too_much(process: ReplicaProcess, seen: Mapping[str, int], now: int) -> bool:
    """Whether it has more tentative tuples than a bound, and what comes between two looks."""
    sizes = dict(process.tentative_sizes())
    between = 1_000 * (2 * SECOND_US // process.settings.timing.bucket_us + 2)
    for stream, bound in process.settings.bounds:
        kept = process.driver.served[stream].tentative
        if bound.then is not Then.DROP or not kept:
            continue
        if bound.size_bytes is not None and sizes.get(stream, 0) > bound.size_bytes + between:
            return True
        if bound.age_us is not None and seen[stream] < now - bound.age_us - 2 * SECOND_US:
            return True
    return False


def _allowed(machine: Checkpointer, bound: int) -> int:
    """A bound holds as far as a join's reach, and what comes between two rounds, let it."""
    unavoidable = machine._inputs - machine._mark(machine._reach).inputs
    return 2 * (bound + unavoidable) + int(6 * machine._growth[1]) + 10
