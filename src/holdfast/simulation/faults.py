"""Faults: what may break, for how long, and where; the schedule of a run is a list of them.

All faults of a schedule end before the calm at the end of a run, and they overlap freely. Being a
plain list, a schedule that breaks something is made shorter by leaving faults out (shrink.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast.core.settings import SECOND_US


class FaultKind(Enum):
    CRASH = "crash"
    STOPPED = "stopped in order"
    PAUSE = "pause"
    SLOW = "slow"
    HANG = "jobs hang"
    BUSY = "others take the processors"
    CUT = "cut"
    CUT_ONE_WAY = "one-way cut"
    PARTITION = "partition"
    SLOW_LINK = "slow link"
    LOSE_CONNECTION = "lose connections"
    DISK_FULL = "disk full"
    DISK_LOST = "disk lost"
    CLOCK_STEP = "clock step"
    SILENCE = "source is silent"
    REMOVED = "removed for good"
    ADDED = "another is added"
    COLLECTED = "feeds and replicas are collected"
    RESCALED = "another number of shards"
    CALLED_OFF = "another number of shards called off"
    MOVED = "a copy moves elsewhere"


class Moment(Enum):
    """What a process is doing when it is lost; the fault waits for that, but not for long."""

    ANY = "any"
    TAKING = "while it takes a checkpoint"
    JUMPED = "just after it has gone on from a checkpoint"


@dataclass(frozen=True)
class Fault:
    """Something is broken between two times. ``servers`` are the ones concerned.

    by_us   how far a clock is set, and back at the end.
    moment  when a crash happens, if that is before the middle of its time.
    """

    kind: FaultKind
    start: int
    end: int
    servers: tuple[str, ...]
    by_us: int = 0
    moment: Moment = Moment.ANY

    def __str__(self) -> str:
        by = f" by {self.by_us / SECOND_US:.1f} s" if self.by_us else ""
        when = "" if self.moment is Moment.ANY else f", {self.moment.value}"
        return (
            f"{self.start / SECOND_US:8.3f} s to {self.end / SECOND_US:8.3f} s  "
            f"{self.kind.value}{by}: {', '.join(self.servers)}{when}"
        )


@dataclass(frozen=True)
class Targets:
    """Where things are, for those who break them.

    links      the pairs of servers between which data or requests flow.
    groups     the servers of the replicas of each fragment.
    producers  the servers a server reads from.
    pairs      the servers of two copies of which one stands by.
    judged     the same of hybrid copies that time themselves, and tell when they are slow.
    """

    servers: list[str]
    links: list[tuple[str, str]]
    groups: list[tuple[str, ...]]
    producers: dict[str, tuple[str, ...]]
    pairs: list[tuple[str, ...]]
    judged: list[tuple[str, ...]]

    @property
    def entries(self) -> list[str]:
        return [server for server in self.servers if server.startswith("e")]


@dataclass(frozen=True)
class Schedule:
    """The faults of a run, and when the run ends."""

    faults: tuple[Fault, ...]
    end: int
    # Which of SHAPES it was drawn from.
    shape: str = ""

    @property
    def gentle(self) -> bool:
        """Whether no fault lasts long enough to justify a tentative tuple."""
        return self.shape == "gentle"

    @property
    def quiet(self) -> bool:
        """Whether sources are silent for seconds, so that a replica may hold nothing."""
        return self.shape in ("lull", "sparse")

    @property
    def slow_disks(self) -> bool:
        """Whether writing takes long, so that more waits for the disk."""
        return self.shape in ("cut_short", "stopped")

    @property
    def large_states(self) -> bool:
        """Whether a whole checkpoint is under way for longer than it may take at first."""
        return self.shape == "bulky"

    @property
    def spares(self) -> bool:
        """Whether a copy that has lost its disk is another one, in the place of the first."""
        return self.shape == "spared"

    @property
    def failing_jobs(self) -> bool:
        """Whether jobs fail so often that all replicas may fail at the same tuple."""
        return self.shape == "failing_jobs"

    @property
    def longest_us(self) -> int:
        """The longest fault."""
        return max((one.end - one.start for one in self.faults), default=0)

    @property
    def longest_step_us(self) -> int:
        """The longest time for which a clock is set wrong."""
        steps = [one for one in self.faults if one.kind is FaultKind.CLOCK_STEP]
        return max((one.end - one.start for one in steps), default=0)

    @property
    def healed_at(self) -> int:
        return max((fault.end for fault in self.faults), default=0)


PAIRWISE = (FaultKind.CUT, FaultKind.CUT_ONE_WAY, FaultKind.SLOW_LINK, FaultKind.LOSE_CONNECTION)
