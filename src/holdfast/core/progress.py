"""Whether a replica gets its work done: what is under way, since when, and what has failed.

Theory of operation. A process that answers is not yet a process that works: its engine may stand
still, its disk may hang, a bucket may make the query raise. So a replica watches its own work. A
job or an append that is not done within its bound makes it *stalled*, and so does one that has
failed too often; whoever stands by counts a stalled replica as missing. The bound is
``Timing.stall_us``, or the length of the stream that the job covers if that is more: a redo of a
minute may take a minute. The first job of a life may take ten times as long, because an engine has
to be started for it.

What stands still for ten bounds will not go on by itself: the process ends, with the reason, and
whoever started it starts it again. Time during which the process itself did not run does not
count, because its engine did not either.

A job that fails is tried again, at first soon, then after pauses that double. After
``Timing.job_attempts`` failures in a row it depends on whose fault it is. What the engine does
wrong a new engine may do right: the process ends. What the query's own code raises it would raise
again anywhere: the replica stays, says which bucket and why, and tries now and then, in case that
the code depends on something that comes back. A full disk is as full for a new engine, which would
only take longer to be there when somebody has made room: the replica stays, and tries often.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.effects import Effect, EndProcess
from holdfast.core.events import JobFailed
from holdfast.core.pauses import pause_after
from holdfast.core.settings import Timing
from holdfast.core.versions import Line, Running

# A stalled replica gives its work so many bounds before it gives up; a first job has as many.
PATIENCE = 10
# Nothing is tried again later than this.
LONGEST_PAUSE_US = 30_000_000
# Room on a disk is noticed within this.
_LONGEST_PAUSE_FOR_ROOM_US = 1_000_000
# A longer time between two looks is one during which this process did not run.
_LONGEST_STEP_US = 2_000_000


@dataclass(frozen=True, slots=True)
class Trouble:
    """What does not get done, and why.

    start, stop  the times of the bucket or buckets.
    attempts     how often it has failed; 0 for what is not done and has not failed either.
    user_code    the query's own code raised it.
    no_room      a disk is full.
    """

    line: Line
    start: int
    stop: int
    attempts: int
    reason: str
    user_code: bool = False
    no_room: bool = False


@dataclass(slots=True)
class _Work:
    """Something under way."""

    number: int
    since: int
    bound_us: int
    what: str


@dataclass(frozen=True, slots=True)
class Work:
    """How the work of a replica gets on, for those who ask.

    stalled   whether there is some that does not get done in time.
    late      what is under way for longer than it may take.
    troubles  what has failed.
    """

    stalled: bool = False
    late: str | None = None
    troubles: tuple[Trouble, ...] = ()


class Progress:
    """The work of one life of a replica."""

    def __init__(self, owner: str, timing: Timing) -> None:
        self._owner = owner
        self._timing = timing
        self._looked_at = 0
        self._job: _Work | None = None
        self._append: _Work | None = None
        self._has_worked = False
        self._failed: dict[Line, Trouble] = {}
        self._ended = False

    @property
    def stalled(self) -> bool:
        """Whether there is work that does not get done in time."""
        most = self._timing.job_attempts
        return bool(self._late()) or any(one.attempts >= most for one in self._failed.values())

    def view(self) -> Work:
        """How it is now."""
        found = [f"{one.what} is not done after {_seconds(used)}" for one, used in self._late()]
        return Work(self.stalled, "; ".join(found) or None, tuple(self._failed.values()))

    def _late(self) -> list[tuple[_Work, int]]:
        """The work that is late, and how long it has taken so far."""
        both = (self._job, self._append)
        taken = [(one, self._looked_at - one.since) for one in both if one is not None]
        return [(one, used_us) for one, used_us in taken if used_us > one.bound_us]

    def done(self, line: Line) -> None:
        """A job has ended well."""
        self._has_worked = True
        self._failed.pop(line, None)

    def failed(self, event: JobFailed, job: Running | None, now: int) -> int:
        """A job has failed; when it may be tried again."""
        if job is None or job.job != event.job:
            return now
        before = self._failed.get(job.line)
        if before is not None and before.start != job.start:
            before = None
        attempts = 1 if before is None else before.attempts + 1
        stop = job.stop if before is None else min(before.stop, job.stop)
        self._failed[job.line] = Trouble(
            job.line, job.start, stop, attempts, event.reason, event.user_code, event.no_room
        )
        if event.user_code and attempts >= self._timing.job_attempts:
            return now + LONGEST_PAUSE_US
        longest_us = _LONGEST_PAUSE_FOR_ROOM_US if event.no_room else LONGEST_PAUSE_US
        return now + pause_after(attempts, self._timing.retry_us, longest_us)

    def look(self, now: int, job: Running | None, append: int | None) -> list[Effect]:
        """See for how long what is under way has been; call it with every event."""
        self._forgive_absence(now)
        if job is None:
            self._job = None
        elif self._job is None or self._job.number != job.job:
            bound_us = max(self._timing.stall_after_us, job.stop - job.start)
            what = f"the {_job(job.line, job.start, job.stop)}"
            bound_us *= 1 if self._has_worked else PATIENCE
            self._job = _Work(job.job, now, bound_us, what)
        if append is None:
            self._append = None
        elif self._append is None or self._append.number != append:
            bound_us = self._timing.stall_after_us
            self._append = _Work(append, now, bound_us, "an append to the log")
        return self._give_up()

    def _forgive_absence(self, now: int) -> None:
        away_us = now - self._looked_at
        self._looked_at = now
        if away_us > _LONGEST_STEP_US:
            for work in (self._job, self._append):
                if work is not None:
                    work.since += away_us

    def _give_up(self) -> list[Effect]:
        if self._ended or (not self._failed and not any(self._late())):
            return []
        reasons = [
            f"{self._owner}: {one.what} has not ended for {_seconds(used_us)}"
            for one, used_us in self._late()
            if used_us > PATIENCE * one.bound_us
        ]
        reasons += [
            f"{self._owner}: the {_job(one.line, one.start, one.stop)} failed {one.attempts} "
            f"times: {one.reason}"
            for one in self._failed.values()
            if one.attempts >= self._timing.job_attempts and not (one.user_code or one.no_room)
        ]
        if not reasons:
            return []
        self._ended = True
        return [EndProcess(reasons[0])]


def _job(line: Line, start: int, stop: int) -> str:
    return f"{line.value} job over {(stop - start) / 1e6:g} s of the stream"


def _seconds(us: int) -> str:
    return f"{us / 1e6:.0f} s"
