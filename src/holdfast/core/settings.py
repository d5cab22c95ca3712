"""What the machines of one process are told when they start: names, neighbours, knobs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from holdfast.core.messages import Part
from holdfast.core.provenance import Trail
from holdfast.core.records import Membership

SECOND_US = 1_000_000


class Policy(Enum):
    """What to do with new tuples while an input is failed, or while reconciling."""

    SUSPEND = "suspend"
    DELAY = "delay"
    PROCESS = "process"


class Reconcile(Enum):
    """How a reconciliation gets back to the state before the failure.

    RESTORE  the very state is kept.
    UNDO     it is given up, and rebuilt from the input since its marker.
    """

    RESTORE = "restore"
    UNDO = "undo"


class Protection(Enum):
    """What stands in for a replica that is lost.

    NONE     nothing: it starts again.
    ACTIVE   other replicas, which run all the time.
    PASSIVE  a second copy that holds checkpoints and is started from them.
    HYBRID   a second copy that is started, holds checkpoints and sleeps.
    RACE     other replicas, which run all the time, and everyone who reads takes from all of them
             whatever comes first.
    """

    NONE = "none"
    ACTIVE = "active"
    PASSIVE = "passive"
    HYBRID = "hybrid"
    RACE = "race"


class Delivery(Enum):
    """How often the results of a fragment count, whatever is lost (``core.delivery``)."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class Checkpointing(Enum):
    """When a primary sends a checkpoint to the other copy.

    SWEEPING     right after its output queue was trimmed.
    INDIVIDUAL   by its own clock.
    SYNCHRONOUS  by its own clock, and nothing is processed until the checkpoint is held.
    """

    SWEEPING = "sweeping"
    INDIVIDUAL = "individual"
    SYNCHRONOUS = "synchronous"


class Keeping(Enum):
    """What a replica has on disk beside its record and its logs.

    NOTHING  the state is computed again from the input since the record's marker.
    STATE    the packed state at the record's boundary.
    WINDOWS  the states of single windows, in the log (continuous checkpoints).
    """

    NOTHING = "nothing"
    STATE = "state"
    WINDOWS = "windows"


@dataclass(frozen=True, slots=True)
class Continuous:
    """Continuous checkpoints: what a recovery may cost, and what they may (``core.continuous``).

    extent, replay     Q and U: the most window states to be read and tuples to be computed
                       again; None for no bound.
    recover_within_us  instead of both: how long that may take. A process that has to be
                       started takes its own time besides.
    interval_us        CI: how long one round of checkpointing may take.
    period_us          CP: the time from one round to the next.
    """

    extent: int | None = None
    replay: int | None = None
    recover_within_us: int | None = None
    interval_us: int = 40_000
    period_us: int = 200_000

    def __post_init__(self) -> None:
        if self.recover_within_us is not None and (self.extent or self.replay):
            raise ValueError("give either recover_within or bounds of extent and replay, not both")
        if not 0 < self.interval_us <= self.period_us:
            raise ValueError(
                f"the interval is above zero and at most the period; got {self.interval_us} µs "
                f"and {self.period_us} µs"
            )


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of a fragment, in microseconds.

    bucket_us              the length of a bucket.
    delay_us, alpha        X and α: SUnion may hold a tuple for αX.
    alpha_adapts           α is the most, and falls as jobs need time (patience.py), but never
    alpha_least            below this.
    heartbeat_interval_us  how often every replica of every upstream neighbour is asked.
    misses_until_down      unanswered heartbeats after which a peer counts as gone.
    partner_timeout_us     how long a partner may think about postponing.
    postpone_lease_us      how long a postponement holds when it is not renewed.
    redo_buckets           buckets per redo job, so that a second version gets its turn; ten
                           times as many when there is none.
    partial_redo_buckets   a corrected stretch this long is reconciled though newer buckets
                           are still tentative: rolling failures must not put it off for ever.
    record_interval_us     how often the recovery record is written at most.
    retry_us               the pause before a failed append or job is tried again; the pauses of a
                           job double.
    job_attempts           failures of a job in a row after which it is no passing trouble.
    stall_us               how long a job or an append may take before the replica counts as
                           missing; 0 for X.
    tentative_frames       so many frames of tentative tuples of a stream are kept until they are
                           corrected; each bucket is two of them.
    """

    bucket_us: int = 200_000
    delay_us: int = 3 * SECOND_US
    alpha: float = 0.9
    alpha_adapts: bool = False
    alpha_least: float = 0.5
    heartbeat_interval_us: int = 250_000
    misses_until_down: int = 3
    partner_timeout_us: int = 500_000
    postpone_lease_us: int = 6 * SECOND_US
    redo_buckets: int = 50
    partial_redo_buckets: int = 150
    record_interval_us: int = SECOND_US
    retry_us: int = 100_000
    job_attempts: int = 5
    stall_us: int = 0
    tentative_frames: int = 10_000

    def __post_init__(self) -> None:
        if self.tentative_frames < 2:
            raise ValueError(
                f"a bucket of tentative tuples is two frames; got {self.tentative_frames}"
            )
        if self.job_attempts < 1:
            raise ValueError(f"a job has at least one attempt; got {self.job_attempts}")
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha is between 0 and 1; got {self.alpha}")
        if not 0 < self.bucket_us < self.alpha_x_us:
            raise ValueError(
                f"a bucket ({self.bucket_us} µs) is shorter than αX ({self.alpha_x_us} µs)"
            )
        if self.alpha_adapts and not 0 < self.alpha_least <= self.alpha:
            raise ValueError(
                f"the least alpha is above 0 and at most {self.alpha}; got {self.alpha_least}"
            )

    @property
    def stall_after_us(self) -> int:
        """How long a job or an append may take before the replica counts as missing."""
        return self.stall_us or self.delay_us

    @property
    def alpha_x_us(self) -> int:
        """How long SUnion may hold a tuple, at most."""
        return int(self.delay_us * self.alpha)

    @property
    def least_alpha_x_us(self) -> int:
        """How long it may hold one whatever jobs take: longer than a bucket lasts."""
        if not self.alpha_adapts:
            return self.alpha_x_us
        longer_us = self.bucket_us + self.bucket_us // 2
        return min(self.alpha_x_us, max(int(self.delay_us * self.alpha_least), longer_us))


class Then(Enum):
    """What happens when more is kept for somebody who is away than a bound allows (bounds.py)."""

    BLOCK = "block"
    RETIRE = "retire"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Bound:
    """How much of a stream is kept for somebody who is away.

    size_bytes  of its log, and of its tentative tuples, at most; None for any number.
    age_us      for so long a tuple is kept, at most; None for any time.
    away_us     who has not been heard of for so long is away.
    fragments   the replicas of each fragment that reads it; whoever is in none is a client.
    """

    size_bytes: int | None = None
    age_us: int | None = None
    then: Then = Then.BLOCK
    away_us: int = 10 * SECOND_US
    fragments: tuple[tuple[str, ...], ...] = ()

    @property
    def is_none(self) -> bool:
        """Whether it allows everything."""
        return self.size_bytes is None and self.age_us is None


@dataclass(frozen=True, slots=True)
class Input:
    """A stream a process reads, and the addresses of all who can provide it.

    standing  keep a feed open at every provider, also at those that are suspended, and take
              stable tuples from whoever brings them first.
    part      what is taken of its tuples; None for all.
    early     take results also before their place in the order is known (early_lane.py).
    trails    by which its early tuples may have come, for whoever hands them on.
    collected (producer, epoch): where no feed is kept until it is needed (revival.py).
    lossy     its ids are those of one life of its producer, which keeps nothing.
    """

    stream: str
    producers: tuple[str, ...]
    standing: bool = False
    part: Part | None = None
    early: bool = False
    trails: tuple[Trail, ...] = ()
    collected: tuple[tuple[str, int], ...] = ()
    lossy: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """A stream a process provides.

    reached_by  the inputs whose tuples can shape it: only they can make it tentative.
    consumers   everyone who must acknowledge a tuple before it may be trimmed.
    ways        (input, trail): how tuples get here that pass no operator which must see others
                with them.
    memory      (trail, inputs): by which trails tuples come that do, and on which inputs they rest.
                Where there are ways or memory, results go out early (early_lane.py, ahead.py), and
                all come by one of these.
    pairs       the trails of those whose tuples are pairs, there once both halves are (pairs.py).
    """

    stream: str
    reached_by: frozenset[str]
    consumers: tuple[str, ...]
    ways: tuple[tuple[str, Trail], ...] = ()
    memory: tuple[tuple[Trail, frozenset[str]], ...] = ()
    pairs: frozenset[Trail] = frozenset()


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """One replica of a fragment."""

    address: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    partners: tuple[str, ...] = ()
    timing: Timing = field(default_factory=Timing)
    while_failed: Policy = Policy.PROCESS
    while_stabilizing: Policy = Policy.PROCESS
    reconcile: Reconcile = Reconcile.RESTORE
    continuous: Continuous | None = None
    # The most tuples of its output queue that go with the state to a replica that joins.
    lent_tuples_max: int = 1_000_000
    # (output, how much of it is kept for somebody who is away)
    bounds: tuple[tuple[str, Bound], ...] = ()
    delivery: Delivery = Delivery.EXACTLY_ONCE
    # Of a new shard, or of what merges such: those whose work it takes over, the replicas of each.
    predecessors: tuple[tuple[str, ...], ...] = ()
    # Whether one that has nothing may begin with the empty state where nothing is trimmed.
    begins_empty: bool = True
    # A digest of what it computes (``FragmentPlan.query``): it takes the states of no other.
    query: str = ""

    def __post_init__(self) -> None:
        names = {one.stream for one in self.inputs}
        if self.delivery is not Delivery.EXACTLY_ONCE and self.continuous is not None:
            raise ValueError(
                f"{self.address}: continuous checkpoints are in the log of results, and with "
                f"delivery = {self.delivery.value} there is none"
            )
        if not names:
            raise ValueError(f"{self.address}: a fragment has at least one input")
        if self.continuous is not None and self.reconcile is Reconcile.UNDO:
            raise ValueError(
                f"{self.address}: continuous checkpoints keep the state; with reconcile = undo "
                f"there is none to keep"
            )
        for output in self.outputs:
            if not output.reached_by <= names:
                unknown = sorted(output.reached_by - names)
                raise ValueError(f"{self.address}: {output.stream} depends on unknown {unknown}")
            if not {name for name, _ in output.ways} <= output.reached_by:
                raise ValueError(
                    f"{self.address}: {output.stream} is not reached so: {output.ways}"
                )

    def among(self, membership: Membership) -> ReplicaSettings:
        """The same among those who take part now."""
        inputs = tuple(
            replace(
                one,
                producers=membership.applied_to(one.producers),
                collected=tuple(membership.collected_from(self.address, one.stream).items()),
            )
            for one in self.inputs
        )
        fragment = membership.applied_to((self.address, *self.partners))
        # Who takes over is no partner: it reads other streams, and makes nothing out with others.
        others = {self.address, *(name for name, _ in membership.taking)} - {*self.partners}
        partners = tuple(name for name in fragment if name not in others)
        return replace(self, inputs=inputs, partners=partners)

    @property
    def can_join(self) -> bool:
        """Whether there is anybody whose state it can take."""
        return bool(self.partners or self.predecessors)

    @property
    def keeping(self) -> Keeping:
        """What is kept of the state."""
        if self.continuous is not None:
            return Keeping.WINDOWS
        return Keeping.STATE if self.reconcile is Reconcile.RESTORE else Keeping.NOTHING


@dataclass(frozen=True, slots=True)
class StandbySettings:
    """How the copies of a passive or hybrid fragment stand in for each other.

    copies                  their addresses, two or more; the first is the primary of term 0.
    persist                 checkpoints are on disk before they count.
    heartbeat_interval_us   how often each copy asks every other.
    misses_until_awake      unanswered heartbeats after which another copy stands in.
    promote_after_us        the primary's silence after which it is replaced for good.
    checkpoint_interval_us  checkpoints are at least this far apart.
    read_state_after_us     a primary that is further behind takes another copy's state.
    by_load                 of several that could stand in, the one with the least to do does,
                            not the first of the ring.
    returns                 the first copy is at home: it is the primary again once it was back
                            for as long as a primary may be silent.
    benchmarks              the benchmarking detector watches a primary, beside the heartbeats:
    load_threshold          from this CPU load on it times the standard set;
    slowdown                so many times slower than at its quickest is a failure; with three
                            times, the fragment's own jobs on one core looked like one.
    """

    copies: tuple[str, ...]
    protection: Protection = Protection.HYBRID
    checkpointing: Checkpointing = Checkpointing.SWEEPING
    persist: bool = True
    heartbeat_interval_us: int = 100_000
    misses_until_awake: int = 1
    promote_after_us: int = 5 * SECOND_US
    checkpoint_interval_us: int = 500_000
    read_state_after_us: int = 2 * SECOND_US
    by_load: bool = False
    returns: bool = False
    benchmarks: bool = False
    load_threshold: float = 0.9
    slowdown: float = 8.0

    def __post_init__(self) -> None:
        if self.protection not in (Protection.PASSIVE, Protection.HYBRID):
            raise ValueError(f"copies stand by for {self.protection.value} fragments only")
        if len(self.copies) < 2 or len(set(self.copies)) < len(self.copies):
            raise ValueError(f"two copies are needed, or more, each once; got {self.copies}")

    def among(self, membership: Membership) -> StandbySettings:
        """The same with who has the places of the copies now.

        A new copy takes the place of the one that went first of those whose place nobody has
        taken. A place that nobody has taken keeps the name of the one that is gone.
        """
        copies, known = list(self.copies), set(self.copies)
        for name, like in membership.added:
            if name in known or like not in known:
                continue
            known.add(name)
            left = [(since, one) for one in copies if (since := membership.gone_since(one))]
            gone = membership.gone_since(name)
            if left and (gone is None or gone > min(left)[0]):
                copies[copies.index(min(left)[1])] = name
        return replace(self, copies=tuple(copies))

    def others_than(self, address: str) -> tuple[str, ...]:
        """The other copies."""
        return tuple(name for name in self.copies if name != address)

    def primary_of(self, term: int) -> str:
        """Who is the primary in a term."""
        return self.copies[term % len(self.copies)]

    def order_of(self, term: int) -> tuple[str, ...]:
        """The primary of a term, and who comes after it, around the ring."""
        first = term % len(self.copies)
        return self.copies[first:] + self.copies[:first]

    def term_after(self, term: int, address: str) -> int:
        """The first later term that is this copy's."""
        return term + (self.order_of(term).index(address) or len(self.copies))
