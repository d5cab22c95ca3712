"""What others may see of a copy: for status, metrics and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.consistency import NodeState
from holdfast.core.frame import Why
from holdfast.core.messages import CopyState
from holdfast.core.serving import ServedStream
from holdfast.core.settings import ReplicaSettings
from holdfast.core.upstream import Upstream

if TYPE_CHECKING:
    from holdfast.core.copy import Copy
    from holdfast.core.protected import ProtectedReplica


@dataclass(frozen=True, slots=True)
class InputView:
    """An input as it is now: from whom it comes, and how far.

    weights  what each replica brought, by how early it was, if all of them send it (ranks.py).
    spared   where no feed is kept because it was collected, and
    revived  where one is kept all the same (revival.py).
    """

    stream: str
    producer: str | None
    next_id: int
    boundary: int
    weights: tuple[tuple[str, float], ...] = ()
    spared: tuple[str, ...] = ()
    revived: tuple[str, ...] = ()

    @classmethod
    def of(cls, one: Upstream) -> InputView:
        return cls(
            one.copy.stream,
            None if one.main is None else one.main.peer,
            one.copy.next_id,
            one.copy.boundary,
            tuple(one.ranks.weights.items()),
            tuple(sorted(one.revival.spared)),
            one.revival.revived,
        )


@dataclass(frozen=True, slots=True)
class OutputView:
    """An output as it is now: what comes next, and what is kept of it for whom.

    kept     stable tuples that are kept, because somebody has not acknowledged them, and
    kept_bytes  what they take, in memory or on disk.
    dropped  tentative tuples that went before stable ones took their place, all told.
    crowded  the same, of those that went because there were more frames than are kept, and whose
             place no stable ones have taken so far.
    """

    stream: str
    next_id: int
    first_id: int
    kept: int
    kept_bytes: int
    dropped: int
    crowded: int

    @classmethod
    def of(cls, name: str, one: ServedStream) -> OutputView:
        kept = (one.kept_tuples, one.kept_bytes)
        return cls(name, one.next_id, one.first_id, *kept, one.dropped, one.crowded_out)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """(stream, names) of those it reads from, above, and of those for whom it keeps, below."""

    above: tuple[tuple[str, tuple[str, ...]], ...]
    below: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def of(cls, settings: ReplicaSettings, served: Mapping[str, ServedStream]) -> Neighbours:
        return cls(
            tuple((one.stream, one.producers) for one in settings.inputs),
            tuple((name, one.acknowledgements.consumers) for name, one in served.items()),
        )


@dataclass(frozen=True, slots=True)
class CopyView:
    """What others may know of a copy: for status, metrics and tests.

    state     what the replica does; None while the copy sleeps.
    boundary  how far the stable state is that it runs on or holds; -1 for none.
    tentative (stream, why) of the outputs on which tentative tuples stand
    alpha     the share of X that tuples wait for missing ones, now
    need_us   what jobs and messages take of X after the wait; None while that is not known
    which     of several copies it is
    epoch     of the membership that it obeys
    incarnation  which life of its directory it is
    beyond    what is kept beyond a bound, and for whom nothing is any more, in words
    full      for whom sources wait, and why
    lapsed    (stream, consumer) of those for whom nothing is kept for now
    neighbours  whom it reads from and who reads from it, as of now
    """

    state: NodeState | None
    boundary: int
    inputs: tuple[InputView, ...]
    outputs: tuple[OutputView, ...]
    tentative: tuple[tuple[str, Why], ...]
    alpha: float
    need_us: int | None
    which: CopyState
    epoch: int
    incarnation: int
    beyond: str
    full: str
    lapsed: frozenset[tuple[str, str]]
    neighbours: Neighbours

    @classmethod
    def of(cls, copy: Copy) -> CopyView:
        replica = copy.replica
        boundary = -1 if copy.held is None else copy.held[0].boundary
        upstreams = {} if replica is None else replica.consumer.upstreams
        soutputs = {} if replica is None else replica.soutputs
        return cls(
            None if replica is None else replica.state,
            boundary if replica is None else replica.versions.stable_position,
            tuple(InputView.of(one) for one in upstreams.values()),
            tuple(OutputView.of(name, one) for name, one in copy.served.items()),
            tuple((name, one.why) for name, one in soutputs.items() if one.why is not None),
            copy.settings.timing.alpha if replica is None else replica.patience.alpha,
            None if replica is None else replica.patience.measured_us,
            copy.state,
            copy.consumers.membership.epoch,
            copy.incarnation,
            copy.bounds.beyond,
            copy.bounds.full,
            copy.bounds.lapsed,
            Neighbours.of(copy.settings, copy.served),
        )


@dataclass(frozen=True, slots=True)
class Glance:
    """What is looked at after every event: cheap to make.

    state     what the replica does, or what the copy is while it sleeps.
    why       the same with the reason, for one of several copies.
    boundary  how far the stable state is; None while it sleeps.
    partners  the other replicas of its fragment.
    joining   whether it takes its place first.
    others    the other copies, where they stand by for one another.
    """

    state: str
    why: str
    boundary: int | None
    partners: tuple[str, ...] = ()
    joining: bool = False
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, copy: Copy, partners: tuple[str, ...]) -> Glance:
        replica = copy.replica
        if copy.joining is not None:
            return cls(copy.state.value, copy.joining.why, None, partners, joining=True)
        if replica is None:
            return cls("starting", "", None, partners)
        return cls(replica.state.value, "", replica.versions.stable_position, partners)


@dataclass(frozen=True, slots=True)
class PairView:
    """A copy among the others, for status and tests.

    holds      whether there is something to go on from: a state, or none is needed.
    confirmed  how far each other copy holds this one's checkpoints.
    """

    state: CopyState
    holds: bool
    term: int
    reason: str
    overloaded: bool
    load: int
    confirmed: tuple[tuple[str, int], ...]
    changes: tuple[tuple[tuple[str, str], int], ...]
    benchmark: tuple[tuple[tuple[str, str], int], ...]

    @classmethod
    def of(cls, copy: ProtectedReplica) -> PairView:
        switch, joining = copy.switch, copy.joining
        return cls(
            copy.state,
            copy.replica is not None or copy.held is not None or copy.lossy,
            switch.term,
            switch.reason if joining is None else joining.why,
            copy.overloaded,
            copy.load,
            tuple((name, one.checkpointer.confirmed) for name, one in copy.others.items()),
            tuple(switch.visits.items()),
            tuple(copy.benchmark.visits.items()),
        )
