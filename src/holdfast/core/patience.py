"""Patience: how long a tuple may wait for missing ones, as far as jobs leave time for it.

Theory of operation. A replica has X for a tuple, from its arrival until the first result that it
shaped is out. It may wait αX of that for the rest of its bucket. What is left is for everything
else: the job that computes the result and its way to the reader. How long jobs take is the
machine's affair, so it is measured: how long they take usually, and how long the slowest took
lately (which is forgotten little by little, and what the first jobs of a life took soon: they are
slow because everything is new to Spark). The job in question may be as slow as that one, and
slower: partners have waited for the same tuple and begin theirs together, over all that came
meanwhile. One slow job may be chance. Where they recur, as beside programs that take the processor
away now and then, the next one will come, too: the slowest is remembered as long as they do, and
some of X is left by how much jobs vary on the whole.
Messages wait for a busy machine as well, which is told by how much longer the slowest took than is
usual. More of X is left where no processor is ever idle, whatever jobs took so far: one of them may
find the processors taken for longer, and the first after a wait, which is over more than any
before, is slower there than on an idle machine.
α is what all this leaves of X, but no more than the share that was asked for and no less than a
bound below which waiting would be of no use. It falls at once and rises slowly.
Where α was given by hand it stays.

Who answers new tuples at once when a failure was noticed has no job under way at the end of a wait.
Who delays them has one all the time. So a job takes along what falls due before it usually ends,
and what falls due later waits at most for as long as the job is slower than is usual.

While a failure is corrected beside a live version, redo jobs take turns with live ones, and what is
due must not wait longer for a redo than it would for any other job. So redo jobs are made as large
as fit into that time: twice as large at most after one that was quick, smaller after one that took
too long. Where jobs are quick they are no longer than two usual ones: for large jobs Spark starts
more workers, which a busy machine takes a second for, and a partner may wait for them, too.

Jobs beside a correction, this replica's or a partner's, which may share the machine, are slower
than others. What they take is learned by itself, and counts as long as something is corrected: a
failure that comes after it finds the machine as it was before.

Only times of jobs go in, and how much of the processors is used, never a clock: what is tentative
depends on the machine, what is stable does not.
"""

from __future__ import annotations

from holdfast.core.settings import Timing

# How much of the slowest job's lead over the usual is forgotten with each job.
_FORGET = 0.03
# The same for the first jobs of a life, over how many there were.
_FORGET_FIRST = 2.0
# A job is slow that takes longer than is usual by so much of X, after the first jobs of a life.
_SLOW = 0.08
_FIRST = 20
# How much of the number of slow jobs is forgotten with each job.
_FORGET_SLOW = 0.005
# How much more slowly the slowest is forgotten for each slow job after the first.
_RECUR = 4.0
# How much one job counts for what is usual, and for how much they vary.
_GAIN = 0.125
_GAIN_VARIES = 1 / 64
# How many times that is left of X.
_VARIES = 6.0
# A redo job takes no longer than so many usual ones.
_REDO_USUAL = 2.0
# Messages and what else is done between a wait, a job and a reader.
WAY_US = 80_000
# On a busy machine messages wait, too: as a share of what the slowest job took beyond the usual.
_BUSY = 1.0
# Partners wait for the same tuple, and begin their jobs together, over more than is usual.
_TOGETHER = 0.5
# What is left of X for it at least, however quick jobs were lately: they were over less.
_LEAST_NEED = 0.13
# The same where no processor is ever idle; and how much more is left there than jobs took so far.
_LEAST_NEED_BUSY = 0.26
_MORE_BUSY = 0.3
# From so much use of the processors on a machine counts as busy, and wholly so from there on.
_BUSY_FROM, _BUSY_WHOLLY = 0.9, 0.98
# How much one look at the processors counts, when there is more use of them and when there is less.
_GAIN_MORE, _GAIN_LESS = 0.25, 1 / 16
REDO_AT_FIRST = 10
# A redo goes so many times as fast as the stream at least, or it would never come to an end.
_REDO_SPEED = 4


class Learned:
    """How long jobs take: usually, and the slowest lately."""

    def __init__(self, x_us: int) -> None:
        self.usual_us = 0.0
        self.slowest_us = 0.0
        self._slow_us = _SLOW * x_us
        self._count = 0
        # How many jobs were slow lately.
        self._slow = 0.0
        # By how much a job differs from the usual, on the average.
        self._varies_us = 0.0

    def learn(self, took_us: int) -> None:
        self._count += 1
        if self._count > _FIRST:
            is_slow = took_us > self.usual_us + self._slow_us
            self._slow += is_slow - self._slow * _FORGET_SLOW
            self._varies_us += _GAIN_VARIES * (abs(took_us - self.usual_us) - self._varies_us)
        gain = max(_GAIN, 1 / self._count)
        self.usual_us += gain * (took_us - self.usual_us)
        recur = max(0.0, self._slow - 1)
        forget = min(1.0, max(_FORGET, _FORGET_FIRST / self._count)) / (1 + _RECUR * recur)
        lead_us = (self.slowest_us - self.usual_us) * (1 - forget)
        self.slowest_us = max(took_us, self.usual_us + max(0.0, lead_us))

    @property
    def is_known(self) -> bool:
        """Whether there were more jobs than the slow first ones."""
        return self._count > _FIRST

    def need_us(self, delays: bool) -> int:
        """What a job and messages may take after a wait."""
        if not self._count:
            return 0
        lead_us = self.slowest_us - self.usual_us
        late_us = lead_us if delays else 0.0
        own_us = self.slowest_us + _TOGETHER * self.usual_us
        return int(late_us + own_us + _BUSY * lead_us + _VARIES * self._varies_us) + WAY_US


class Patience:
    """What one replica has learned of its jobs."""

    def __init__(self, timing: Timing, delays: bool = False) -> None:
        """``delays``: buckets are delayed while something is failed or corrected."""
        self._timing = timing
        self._delays = delays
        self._calm = Learned(timing.delay_us)
        self._beside = Learned(timing.delay_us)
        self._corrects = False
        # How much of the processors is used, lately.
        self._used = 0.0
        self._job: tuple[int, int, bool, bool] | None = None
        self._redo_buckets = min(timing.redo_buckets, REDO_AT_FIRST)
        self.alpha_x_us = timing.alpha_x_us
        self._adapt()

    @property
    def alpha(self) -> float:
        """The share of X that tuples wait now."""
        return self.alpha_x_us / self._timing.delay_us

    @property
    def need_us(self) -> int:
        """What jobs and messages take of X after the wait, by what was measured."""
        need_us = self._calm.need_us(self._delays)
        if self._corrects:
            need_us = max(need_us, self._beside.need_us(self._delays))
        return int(need_us * (1 + _MORE_BUSY * self._busy))

    @property
    def _busy(self) -> float:
        """How busy the machine is: 0 if processors are idle now and then, 1 if never."""
        return min(1.0, max(0.0, (self._used - _BUSY_FROM) / (_BUSY_WHOLLY - _BUSY_FROM)))

    @property
    def measured_us(self) -> int | None:
        """The same when nothing is corrected; None while there were too few jobs."""
        return self._calm.need_us(self._delays) if self._calm.is_known else None

    @property
    def _now(self) -> Learned:
        """What counts as it is now: the slower of the two while something is corrected."""
        slower = self._corrects and self._beside.slowest_us > self._calm.slowest_us
        return self._beside if slower else self._calm

    @property
    def ahead_us(self) -> int:
        """A job over delayed buckets takes along those that fall due so soon after it began."""
        adapts = self._delays and self._timing.alpha_adapts
        return min(int(self._now.usual_us), self._timing.alpha_x_us // 4) if adapts else 0

    @property
    def redo_buckets(self) -> int:
        """How many buckets a redo job takes while a live version waits for its turn."""
        return self._redo_buckets

    def look(self, corrects: bool) -> None:
        """Whether this replica or a partner corrects something now."""
        if corrects != self._corrects:
            self._corrects = corrects
            self._adapt()

    def measured(self, used: float) -> None:
        """So much of the processors was used of late."""
        gain = _GAIN_MORE if used > self._used else _GAIN_LESS
        self._used += gain * (used - self._used)
        self._adapt()

    def job_begins(self, span_us: int, is_redo: bool, now: int) -> None:
        """A job over so much stream time begins; ``is_redo``: beside a live version."""
        self._job = (now, span_us, is_redo, self._corrects)

    def job_done(self, now: int) -> None:
        """The job that began last is done."""
        if self._job is None:
            return
        (began, span_us, is_redo, beside), self._job = self._job, None
        took_us = max(1, now - began)
        if is_redo:
            self._size_redo(took_us, span_us)
        elif span_us <= self._timing.alpha_x_us:
            learned = self._beside if beside or self._corrects else self._calm
            learned.learn(took_us)
            self._adapt()

    def _adapt(self) -> None:
        timing = self._timing
        if timing.alpha_adapts:
            least = _LEAST_NEED + (_LEAST_NEED_BUSY - _LEAST_NEED) * self._busy
            need_us = max(self.need_us, int(least * timing.delay_us))
            left_us = timing.delay_us - need_us
            self.alpha_x_us = max(timing.least_alpha_x_us, min(timing.alpha_x_us, left_us))

    def _size_redo(self, took_us: int, span_us: int) -> None:
        spare_us = self._timing.delay_us - self.alpha_x_us
        learned = self._now
        left_us = spare_us - learned.slowest_us - WAY_US
        fits_us = max(learned.usual_us, min(left_us, _REDO_USUAL * learned.usual_us))
        buckets = max(1, span_us // self._timing.bucket_us)
        wanted = int(buckets * min(2.0, max(0.25, fits_us / took_us)))
        least = -(-_REDO_SPEED * took_us // self._timing.bucket_us)
        self._redo_buckets = min(self._timing.redo_buckets, max(least, wanted))

    def validate(self) -> None:
        timing = self._timing
        if not timing.bucket_us < self.alpha_x_us <= timing.alpha_x_us:
            raise ValueError(f"αX is {self.alpha_x_us} µs with {timing}")
