"""Sources whose tuples bring their own time: out of order, idle, and with wrong stamps.

They go through the machine of the product (``core.source_time``), as an entry point's intake has
it. Rows that are ahead of the clock are not made into tuples, nor are late ones; or these take the
boundary as their time. Some producers promise how far they are while they have nothing to say.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from random import Random

from holdfast.core.events import SourceBatch
from holdfast.core.settings import SECOND_US, Timing
from holdfast.core.source_time import FAR, Late, SourceTime, TimeSettings, TimeVerdict
from holdfast.simulation.networks import NetworkSpec

LANES = ("left", "right")
# A stamp of the year 2099, and one of the day before.
_FUTURE_US, _PAST_US = 70 * 365 * 86_400 * SECOND_US, 86_400 * SECOND_US


def with_own_time(spec: NetworkSpec) -> NetworkSpec:
    """The same network; every other source, the first included, has producers with own times."""
    quiet_us = time_settings(spec.timing).quiet_us
    entries = (
        replace(entry, own_time=True, lane_idle_us=quiet_us) if index % 2 == 0 else entry
        for index, entry in enumerate(spec.entries)
    )
    return replace(spec, entries=tuple(entries))


def time_settings(timing: Timing) -> TimeSettings:
    """What fits into αX beside a bucket and the time between two boundaries."""
    left = max(4, timing.alpha_x_us - 2 * timing.bucket_us)
    return TimeSettings(timing.bucket_us, left // 8, left // 4, None, left // 8)


class OwnTimeSource:
    """Two producers of one stream; each batch is judged once, and offered until it is accepted."""

    def __init__(self, random: Random, timing: Timing) -> None:
        self._random = random
        # What is set is drawn beside the rest, which is the same whatever it is.
        drawn = Random()
        drawn.setstate(random.getstate())
        late = drawn.choice([Late.DROP, Late.TAKE])
        self.settings = replace(time_settings(timing), late=late)
        self._promises = drawn.random() < 0.5
        self.promised = 0
        # Not yet accepted, each with its lane.
        self._batches: deque[tuple[str, SourceBatch]] = deque()
        self._made_at: deque[int] = deque()
        self._offered = 0
        self._quiet_until = dict.fromkeys(LANES, 0)
        self._accepted_newest = dict.fromkeys(LANES, -FAR)
        self.made: list[tuple[int, int]] = []
        self.verdicts: Counter[TimeVerdict] = Counter()
        # Of each producer the newest row that counted, by its own account; and who was idle or has
        # promised something: its rows may be late though they are as fresh as ever.
        self._said = dict.fromkeys(LANES, -FAR)
        self._excused: set[str] = set()
        self.wronged: list[tuple[str, int, int]] = []
        self.most_idle = 0
        self.time = SourceTime(self.settings)

    def start(self, boundary: int, now: int) -> None:
        """A new life of the entry point: it knows its log, and what its ledger has of the lanes."""
        self.time = SourceTime(self.settings, boundary)
        for lane, newest in self._accepted_newest.items():
            self.time.open(lane, now, newest)
        for lane, batch in self._batches:
            self.time.took(lane, batch.stime_max)

    def produce(self, now: int) -> None:
        """A batch of one of the producers, unless it has nothing to say for a while."""
        lane = self._random.choice(LANES)
        if now < self._quiet_until[lane]:
            self._promise(lane, now)
            return
        if self._random.random() < 0.02:
            self._quiet_until[lane] = now + self._random.randrange(8 * SECOND_US)
        rows = []
        for _ in range(self._random.choice([0, 1, 1, 2, 3])):
            stime = self._stamp(now)
            verdict = self.time.judge(lane, stime, now)
            self.verdicts[verdict] += 1
            self._hold_to_the_lateness(lane, stime, verdict)
            if verdict is TimeVerdict.LATE and self.settings.late is Late.TAKE:
                stime, verdict = self.time.boundary, TimeVerdict.IN_TIME
            if verdict is TimeVerdict.IN_TIME:
                rows.append((stime, self._random.randrange(4), self._random.randrange(1 << 30)))
        if rows:
            stamps = [row[0] for row in rows]
            ends = (min(stamps), max(stamps))
            batch = SourceBatch(len(self.made), len(rows), *ends, tuple(rows), self.time.boundary)
            self._batches.append((lane, batch))
            self._made_at.append(now)
            self.made += [(key, value) for _, key, value in rows]

    def _hold_to_the_lateness(self, lane: str, stime: int, verdict: TimeVerdict) -> None:
        """A row that is no older than its own producer may bring it is not late.

        Before its first row nothing is known of it; before the world began everything is late.
        """
        oldest = max(0, self._said[lane] - self.settings.lateness_us)
        heard = self._said[lane] > -FAR
        if heard and verdict is TimeVerdict.LATE and stime >= oldest and lane not in self._excused:
            self.wronged.append((lane, stime, oldest))
        if verdict is not TimeVerdict.FUTURE:
            self._said[lane] = max(self._said[lane], stime)

    def _promise(self, lane: str, now: int) -> None:
        """Instead of a row: nothing older than what a row of now could be."""
        if self._promises:
            self._excused.add(lane)
            self.time.promise(lane, now - self.settings.lateness_us, now)
            self.promised += 1

    def offers(self, now: int | None) -> list[SourceBatch]:
        """Batches not yet offered."""
        found = [batch for _, batch in self._batches if batch.first_id >= self._offered]
        if found:
            self._offered = found[-1].first_id + found[-1].count
        return found

    def look_for_idle(self, now: int) -> None:
        self.time.tick(now)
        self._excused.update(self.time.idle)
        self.most_idle = max(self.most_idle, len(self.time.idle))

    @property
    def reached(self) -> int:
        """How far the source is, with or without a new tuple."""
        return self.time.boundary

    @property
    def all_taken(self) -> bool:
        return not self._batches

    @property
    def waiting_since(self) -> int | None:
        """When the oldest tuple was made that its entry point has not accepted."""
        return self._made_at[0] if self._made_at else None

    def offer_from(self, next_id: int) -> None:
        self._offered = min(self._offered, next_id)

    def accepted(self, next_id: int) -> None:
        while self._batches:
            lane, batch = self._batches[0]
            if batch.first_id + batch.count > next_id:
                break
            self._batches.popleft()
            self._made_at.popleft()
            self._accepted_newest[lane] = max(self._accepted_newest[lane], batch.stime_max)
        self._offered = max(self._offered, next_id)

    def _stamp(self, now: int) -> int:
        """Mostly a little ago, in no order; now and then the wrong century, or the day before."""
        chance = self._random.random()
        if chance < 0.02:
            return now + _FUTURE_US
        if chance < 0.04:
            return now - _PAST_US
        return now - self._random.randrange(self.settings.lateness_us + 1)
