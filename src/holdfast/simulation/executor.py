"""The stand-in for Spark: operators on tuples of tuples, with the engine's contract.

advance(state, rows, start, stop) -> (state', results): states are immutable, an advance emits
exactly the results with start <= stime < stop in a total order, and advancing over several
buckets at once gives the same results as one at a time. It lives here and nowhere else.

A row is (stime, key, value), and behind operators also its seq (``core.provenance``), which unions
hand on and joins make of those of both halves. Rows come in the order of stime, stream and id.
Every operator mixes what it reads into the values it writes in an order-sensitive way, so that a
lost, doubled, late or misplaced input row changes some output row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeAlias

from holdfast.core.effects import GiveUp, InputSlice, Line, RunAhead, RunEarly, RunJob, RunPairs
from holdfast.core.events import AheadDone, EarlyDone, JobDone, Left, OutputBlock, PairsDone
from holdfast.core.provenance import Choice, Claim, Trail
from holdfast.core.stream_copy import FAR_FUTURE

Row: TypeAlias = tuple[int, ...]
Tagged: TypeAlias = tuple[int, str, int, int, int, int]  # stime, stream, id, key, value, seq
MODULUS = (1 << 61) - 1
# In the place of the state that an operator has given up.
GONE = "gone"


def mix(accumulated: int, value: int) -> int:
    """Fold a value into an accumulator; the order matters."""
    return (accumulated * 1_000_003 + value + 1) % MODULUS


class Operator(Protocol):
    """One output of a fragment, computed from some of its inputs."""

    @property
    def inputs(self) -> tuple[str, ...]: ...

    @property
    def blocking(self) -> bool: ...

    def advance(
        self, state: object, rows: list[Tagged], start: int, stop: int
    ) -> tuple[object, list[Row], int]:
        """New state, results, and the oldest input time the state depends on."""


@dataclass(frozen=True)
class Union:
    """Merges its inputs and drops the rows of one key."""

    inputs: tuple[str, ...]
    dropped_key: int = -1
    blocking: bool = False

    @property
    def ways(self) -> tuple[tuple[str, Trail], ...]:
        """By which trail the rows of each input come out."""
        bits = max(1, (len(self.inputs) - 1).bit_length())
        return tuple((name, Trail(bits, branch)) for branch, name in enumerate(self.inputs))

    def advance(
        self, state: object, rows: list[Tagged], start: int, stop: int
    ) -> tuple[object, list[Row], int]:
        ways = dict(self.ways)
        results: list[Row] = [
            (stime, key, mix(len(stream), value), ways[stream].seq(seq))
            for stime, stream, _, key, value, seq in rows
            if key != self.dropped_key
        ]
        return None, results, stop


@dataclass(frozen=True)
class Window:
    """Tumbling windows per key; a result's stime is the window's end less one."""

    inputs: tuple[str, ...]
    size_us: int
    blocking: bool = False

    def fold(self, accumulated: int, value: int, seq: int) -> int:
        """What a window comes to with another tuple."""
        return mix(accumulated, value)

    def advance(
        self, state: object, rows: list[Tagged], start: int, stop: int
    ) -> tuple[object, list[Row], int]:
        # (window start, key) -> (accumulated, oldest stime)
        windows: dict[tuple[int, int], tuple[int, int]] = dict(state or ())  # type: ignore[call-overload]
        for stime, _, _, key, value, seq in rows:
            place = (stime - stime % self.size_us, key)
            accumulated, oldest = windows.get(place, (0, stime))
            windows[place] = (self.fold(accumulated, value, seq), min(oldest, stime))
        results: list[Row] = []
        for place in sorted(windows):
            end = place[0] + self.size_us
            if end <= stop:
                accumulated, _ = windows.pop(place)
                if end - 1 >= start:
                    results.append((end - 1, place[1], accumulated, 0))
        marker = min((oldest for _, oldest in windows.values()), default=stop)
        return tuple(windows.items()), results, min(marker, stop)


@dataclass(frozen=True)
class Gather(Window):
    """Windows that tell which tuples they have, and how often, up to 15 times.

    A window's value has a digit of four bits for each tuple of the source, at its id.
    """

    def fold(self, accumulated: int, value: int, seq: int) -> int:
        return accumulated + (1 << 4 * seq)


@dataclass(frozen=True)
class Distinct:
    """The first row of each key in tumbling windows, as soon as it is there."""

    inputs: tuple[str, ...]
    size_us: int
    blocking: bool = False

    def advance(
        self, state: object, rows: list[Tagged], start: int, stop: int
    ) -> tuple[object, list[Row], int]:
        # (window start, key) -> (value, stime) of the first
        windows: dict[tuple[int, int], tuple[int, int]] = dict(state or ())  # type: ignore[call-overload]
        results: list[Row] = []
        for stime, _, _, key, value, _ in rows:
            place = (stime - stime % self.size_us, key)
            if place not in windows:
                windows[place] = (value, stime)
                if stime >= start:
                    results.append((stime, key, value, 0))
        windows = {place: kept for place, kept in windows.items() if place[0] + self.size_us > stop}
        marker = min((oldest for _, oldest in windows.values()), default=stop)
        return tuple(windows.items()), results, min(marker, stop)


@dataclass(frozen=True)
class Join:
    """Pairs of rows of two streams with equal keys, at most ``within_us`` apart."""

    inputs: tuple[str, ...]
    within_us: int
    blocking: bool = True

    def advance(
        self, state: object, rows: list[Tagged], start: int, stop: int
    ) -> tuple[object, list[Row], int]:
        kept: deque[Tagged] = deque(state or ())  # type: ignore[call-overload]
        results: list[Row] = []
        for row in rows:
            stime, stream, _, key, value, _ = row
            while kept and stime - kept[0][0] > self.within_us:
                kept.popleft()
            for other in kept:
                if other[3] == key and other[1] != stream:
                    results.append((stime, key, mix(other[4], value), self._seq(other, row)))
            kept.append(row)
        # One that is just so far from ``stop`` is still a partner of what comes there.
        while kept and kept[0][0] < stop - self.within_us:
            kept.popleft()
        return tuple(kept), results, kept[0][0] if kept else stop

    def _seq(self, *halves: Tagged) -> int:
        """Of both halves, whichever of them came first."""
        found = 0
        for side, seq in sorted((self.inputs.index(one[1]), one[5]) for one in halves):
            found = mix(mix(found, side), seq)
        return found


@dataclass(frozen=True)
class Merge:
    """Puts the streams of shards together again, in the order that each of them has."""

    inputs: tuple[str, ...]
    blocking: bool = False

    def advance(
        self, state: object, rows: list[Tagged], start: int, stop: int
    ) -> tuple[object, list[Row], int]:
        return None, sorted((stime, key, value, seq) for stime, _, _, key, value, seq in rows), stop


@cache
def slot_of(key: int) -> int:
    """The slot of a key, as the product has it."""
    # Arrow is loaded only where there are shards: who asks for help gets it at once.
    import pyarrow as pa

    from holdfast import slots

    return int(slots.slots_of([pa.chunked_array([[key]])], 1)[0])


@dataclass(frozen=True)
class Computation:
    """The operators of a fragment, one per output.

    shard  which shard it is, from 1, and of how many: it takes the rows of its slots only, and
           gives rows of one time in the order of their columns, so that they can be merged.
    primary  the first shard takes all rows, and the others are there to stand by.
    """

    outputs: tuple[tuple[str, Operator], ...]
    shard: tuple[int, int] | None = None
    primary: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The streams that are read."""
        return tuple(dict.fromkeys(name for _, one in self.outputs for name in one.inputs))

    def takes(self, key: int) -> bool:
        """Whether rows of a key are for this shard."""
        if self.shard is None or self.shard[1] == 1:
            return True
        from holdfast import slots

        routing = slots.Routing.PRIMARY if self.primary else slots.Routing.KEY
        first, end = slots.slot_range(*self.shard, routing)
        return first <= slot_of(key) < end

    def read(self, slices: Iterable[InputSlice]) -> list[Tagged]:
        """The rows of some slices that are for it."""
        rows = [row for piece in slices for row in read_slice(piece)]
        return rows if self.shard is None else [row for row in rows if self.takes(row[3])]

    def united(self, states: list[object]) -> object:
        """One state of several shards': what is this one's of each."""
        lists: list[tuple[object, ...]] = [one for one in states if one is not None]  # type: ignore[misc]
        if not lists:
            return None
        return tuple(self._united(parts) for parts in zip(*lists, strict=True))

    def _united(self, parts: tuple[object, ...]) -> object:
        if all(part is None for part in parts):
            return None
        items: list[Any] = [item for part in parts for item in part or ()]  # type: ignore[attr-defined]
        # Windows are ((start, key), ...); a join keeps rows.
        keys = [item[0][1] if isinstance(item[0], tuple) else item[3] for item in items]
        return tuple(sorted(item for item, key in zip(items, keys, strict=True) if self.takes(key)))

    def advance(
        self, state: object, rows: list[Tagged], start: int, stop: int
    ) -> tuple[object, dict[str, list[Row]], int]:
        """The contract of the engine; ``rows`` in any order."""
        rows.sort()
        states: tuple[object, ...] = state or (None,) * len(self.outputs)  # type: ignore[assignment]
        after = []
        results = {}
        marker = stop
        for (stream, operator), before in zip(self.outputs, states, strict=True):
            mine = [row for row in rows if row[1] in operator.inputs]
            operator_state, results[stream], oldest = operator.advance(before, mine, start, stop)
            if self.shard is not None:
                results[stream].sort()
            after.append(operator_state)
            marker = min(marker, oldest)
        return tuple(after), results, marker

    def due(self, state: object) -> int:
        """When a state has a result though no row comes: its first window ends."""
        parts: tuple[Any, ...] = state or (None,) * len(self.outputs)  # type: ignore[assignment]
        return min(
            (
                start + operator.size_us
                for (_, operator), part in zip(self.outputs, parts, strict=True)
                if isinstance(operator, Window)
                for (start, _), _ in part or ()
            ),
            default=FAR_FUTURE,
        )

    def give_up(self, order: GiveUp) -> Left:
        """What is left of a state without the operators that some inputs reach."""
        at, marker, left = order.boundary, order.boundary, list[object]()
        states: tuple[object, ...] = order.state  # type: ignore[assignment]
        for (_, operator), state in zip(self.outputs, states, strict=True):
            if state is not GONE and order.inputs.intersection(operator.inputs):
                marker = min(marker, operator.advance(state, [], at, at)[2])
                state = GONE
            left.append(state)
        return Left(tuple(left), marker)

    def rebuild(
        self, left: tuple[object, ...], rows: list[Tagged], start: int, stop: int
    ) -> tuple[object, dict[str, list[Row]], int]:
        """The state at ``stop`` from what is left of it; only what is gone is computed."""
        whole, results, _ = self.advance(None, rows, start, stop)
        made: tuple[object, ...] = whole  # type: ignore[assignment]
        states = tuple(new if old is GONE else old for old, new in zip(left, made, strict=True))
        _, _, marker = self.advance(states, [], stop, stop)
        return states, results, marker


def tagged(stream: str, tuple_id: int, row: Row) -> Tagged:
    """A row with its stream and id; a source's ids are its seqs."""
    stime, key, value, *seq = row
    return (stime, stream, tuple_id, key, value, seq[0] if seq else tuple_id)


def read_slice(piece: InputSlice) -> list[Tagged]:
    """The rows of a slice, each with its stream and id."""
    block: tuple[Row, ...] = piece.block  # type: ignore[assignment]
    first_id = piece.header.first_id
    return [
        tagged(piece.stream, first_id + index, row)
        for index, row in enumerate(block)
        if index >= piece.skip and piece.stime_from <= row[0] < piece.stime_to
    ]


def run_early(plan: Computation, order: RunEarly) -> EarlyDone:
    """Carry out an early job at once: every row by itself, no state."""
    rows: list[Tagged] = []
    found = []
    for piece in order.pieces:
        choice = piece.choice
        read = [row for one in piece.slices for row in read_slice(one)]
        mine = [row for row in read if choice is None or choice.takes(row[5], row[0])]
        if not piece.claims:
            mine = [row for row in mine if any(_came_by(one, row) for one in piece.trails)]
            found.append(points([row[5] for row in mine], piece.trails, piece.newest))
        rows += mine
    unions = tuple((name, one) for name, one in plan.outputs if isinstance(one, Union))
    _, results, _ = Computation(unions).advance(None, rows, 0, FAR_FUTURE)
    return EarlyDone(order.job, _blocks(results), tuple(found))


def _came_by(trail: Trail, row: Tagged) -> bool:
    return trail.id_of(row[5]) is not None


def _blocks(results: dict[str, list[Row]]) -> tuple[OutputBlock, ...]:
    return tuple(
        OutputBlock(name, len(made), 0, made[0][0], made[-1][0], made[-1][0], tuple(made))
        for name, made in results.items()
        if made
    )


def run_ahead(plan: Computation, order: RunAhead) -> AheadDone:
    """Carry out a job of some inputs at once."""
    state, results, _ = plan.advance(order.state, plan.read(order.slices), order.start, order.stop)
    wanted = {}
    for stream, claims in order.claims:
        choice = Choice(claims, inside=True)
        wanted[stream] = [row for row in results[stream] if choice.takes(row[3], row[0])]
    return AheadDone(order.job, state, _blocks(wanted))


def run_pairs(plan: Computation, order: RunPairs) -> PairsDone:
    """Carry out a look at the joins at once."""
    rows = plan.read(order.slices)
    seen: set[tuple[str, int, int]] = set()
    for piece in order.pieces:
        choice = piece.choice
        read = [row for one in piece.slices for row in read_slice(one)]
        read = [row for row in read if choice is None or choice.takes(row[5], row[0])]
        rows += [row for row in read if (row[1], row[0], row[5]) not in seen]
        seen |= {(row[1], row[0], row[5]) for row in read}
    joins = tuple(
        (name, one) for name, one in plan.outputs if name in {each[0] for each in order.wanted}
    )
    states: tuple[object, ...] = order.state or (None,) * len(plan.outputs)  # type: ignore[assignment]
    own = tuple(
        state for (name, _), state in zip(plan.outputs, states, strict=True) if name in dict(joins)
    )
    _, results, _ = Computation(joins).advance(own, rows, order.start, FAR_FUTURE)
    wanted, found, left = {}, [], order.most
    for stream, trails, known in order.wanted:
        choice = Choice(known, inside=False)
        fresh = [row for row in results[stream] if choice.takes(row[3], row[0])]
        claims = tuple(
            Claim(trail, name, name + 1, row[0])
            for trail in trails
            for row in fresh
            if (name := trail.place_of(row[3], row[0])) is not None
        )[:left]
        left -= len(claims)
        chosen = Choice(claims, inside=True)
        wanted[stream] = [row for row in fresh if chosen.takes(row[3], row[0])]
        found.append((stream, claims))
    return PairsDone(order.job, _blocks(wanted), tuple(found))


def points(seqs: list[int], trails: tuple[Trail, ...], stime_max: int) -> tuple[Claim, ...]:
    """What single tuples, and nothing between them, can be claimed as."""
    found = []
    for trail in trails:
        ids = sorted({one for seq in seqs if (one := trail.id_of(seq)) is not None})
        found += [Claim(trail, one, one + 1, stime_max) for one in ids]
    return tuple(found)


def run_job(plan: Computation, job: RunJob) -> JobDone:
    """Carry out a job at once; the simulator decides how long it took."""
    rows = plan.read(job.slices)
    if job.line is Line.REBUILD and isinstance(job.state, tuple):
        state, results, marker = plan.rebuild(job.state, rows, job.start, job.stop)
    else:
        state, results, marker = plan.advance(job.state, rows, job.start, job.stop)
    left = None if job.gives_up is None else plan.give_up(job.gives_up)
    emit_from = dict(job.emit_from)
    blocks = []
    for stream, produced in results.items():
        fresh = tuple(row for row in produced if row[0] >= emit_from[stream])
        skipped = len(produced) - len(fresh)
        if fresh:
            first, last = fresh[0][0], fresh[-1][0]
            blocks.append(OutputBlock(stream, len(fresh), skipped, first, last, last, fresh))
        elif skipped:
            blocks.append(OutputBlock(stream, 0, skipped, 0, 0, 0, ()))
    return JobDone(job.job, state, marker, tuple(blocks), left=left, due=plan.due(state))
