"""Networks to simulate: what runs where, with which operators, policies and times.

``generate`` draws one from a seed: its depth, fan-in and fan-out, blocking and non-blocking
operators, replicas, policies and times all vary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from holdfast.core.client import ClientSettings
from holdfast.core.entry import EntrySettings
from holdfast.core.heirs import Heirs
from holdfast.core.provenance import TIMED, Trail
from holdfast.core.settings import (
    SECOND_US,
    Bound,
    Checkpointing,
    Continuous,
    Delivery,
    Input,
    Output,
    Policy,
    Protection,
    Reconcile,
    ReplicaSettings,
    StandbySettings,
    Timing,
)
from holdfast.simulation.executor import Computation, Distinct, Join, Merge, Operator, Union, Window

_KEEP = Reconcile.RESTORE
# How many buckets a window may have where nobody keeps input for as long as it is open.
LONG_BUCKETS = 120


@dataclass(frozen=True)
class Fragment:
    """A fragment and where its replicas run."""

    name: str
    plan: Computation
    addresses: tuple[str, ...]
    while_failed: Policy
    while_stabilizing: Policy
    reconcile: Reconcile
    standby: StandbySettings | None = None
    continuous: Continuous | None = None
    race: bool = False
    # Of one that merges shards: what it must come to.
    whole: Computation | None = None
    # Of a shard, in how many parts it is, each with an heir of its own (core/heirs.py).
    parts: int = 1
    # And of whatever number of shards it will be in.
    heirs: Heirs = Heirs.NEXT
    delivery: Delivery = Delivery.EXACTLY_ONCE
    # On what is kept of each of its streams.
    bound: Bound | None = None

    @property
    def protection(self) -> Protection:
        if self.standby is not None:
            return self.standby.protection
        if self.race:
            return Protection.RACE
        return Protection.ACTIVE if len(self.addresses) > 1 else Protection.NONE

    @property
    def standing(self) -> bool:
        """Whether readers keep feeds at every replica."""
        return self.protection in (Protection.HYBRID, Protection.RACE)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.plan.inputs


@dataclass(frozen=True)
class NetworkSpec:
    """A whole deployment."""

    timing: Timing
    entries: tuple[EntrySettings, ...]
    fragments: tuple[Fragment, ...]
    clients: tuple[ClientSettings, ...]
    job_us: int
    # How long the engine of a passive copy takes to start.
    start_us: int = 2 * SECOND_US

    @property
    def standing(self) -> set[str]:
        """The streams whose readers keep feeds at every copy."""
        return {stream for one in self.fragments if one.standing for stream, _ in one.plan.outputs}

    @property
    def lossy(self) -> set[str]:
        """The streams of which nothing is kept."""
        return {
            stream
            for one in self.fragments
            if one.delivery is Delivery.AT_MOST_ONCE
            for stream, _ in one.plan.outputs
        }

    @property
    def trails(self) -> dict[str, tuple[Trail, ...]]:
        """The streams with early results, and the sources, by which trails their tuples come."""
        found: dict[str, tuple[Trail, ...]] = {one.stream: (Trail(),) for one in self.entries}
        for fragment in self.fragments:
            races = fragment.race and fragment.plan.shard is None
            for stream, operator in fragment.plan.outputs if races else ():
                trails = self._trails_of(fragment, operator, found)
                if trails:
                    found[stream] = trails
        return found

    def _trails_of(
        self, fragment: Fragment, operator: Operator, found: dict[str, tuple[Trail, ...]]
    ) -> tuple[Trail, ...]:
        """None if nothing can be said before the order has come so far."""
        ahead = set(operator.inputs) != set(fragment.inputs)
        if isinstance(operator, Merge) or self.lossy & set(operator.inputs):
            return ()
        if not isinstance(operator, Union):
            return (TIMED,) if ahead or isinstance(operator, Join) else ()
        early = len(fragment.inputs) > 1 or any(name in found for name in operator.inputs)
        return tuple(
            trail.then(branch)
            for name, branch in operator.ways
            if early
            for trail in found.get(name, (TIMED,))
        )

    @property
    def producers(self) -> dict[str, tuple[str, ...]]:
        """Who provides each stream."""
        found: dict[str, tuple[str, ...]] = {one.stream: (one.address,) for one in self.entries}
        for fragment in self.fragments:
            found |= {stream: fragment.addresses for stream, _ in fragment.plan.outputs}
        return found

    @property
    def redo_us(self) -> int:
        """How long a replica takes to redo a long failure, while new buckets keep coming."""
        return self.redo_us_after(0)

    def redo_us_after(self, failure_us: int) -> int:
        """The same of a failure that may be longer than most are."""
        timing = self.timing
        # Between two redo jobs the live version has its turn.
        speed = timing.redo_buckets * timing.bucket_us / self.job_us / 2
        return int(max(failure_us, 40 * SECOND_US) / (speed - 1))

    @property
    def calm_us(self) -> int:
        """How long everything must be well for everyone to have reconciled, in turn."""
        levels = len({fragment.name[:2] for fragment in self.fragments})
        levels += len({fragment.name[:2] for fragment in self.fragments if fragment.whole})
        return 20 * SECOND_US + 3 * self.timing.delay_us + levels * self.redo_us

    def replica_settings(self) -> dict[str, ReplicaSettings]:
        """The settings of every replica, by address."""
        producers, consumers, standing = self.producers, self._consumers(), self.standing
        trails, sources = self.trails, {one.stream for one in self.entries}
        lossy = self.lossy
        settings = {}
        for fragment in self.fragments:
            inputs = fragment.inputs
            ways = {
                stream: operator.ways
                for stream, operator in fragment.plan.outputs
                if stream in trails and isinstance(operator, Union)
            }
            memory = {
                stream: ((TIMED, frozenset(operator.inputs)),)
                for stream, operator in fragment.plan.outputs
                if stream in trails and not isinstance(operator, Union)
            }
            hands_on = {name for listed in ways.values() for name, _ in listed} - sources
            pairs = {
                stream: frozenset([TIMED])
                for stream, operator in fragment.plan.outputs
                if stream in memory and isinstance(operator, Join)
            }
            joined = {
                name for stream in pairs for name in dict(fragment.plan.outputs)[stream].inputs
            }
            asked = (hands_on | joined - sources) & trails.keys()
            for index, address in enumerate(fragment.addresses):
                turned = fragment.addresses[index:] + fragment.addresses[:index]
                settings[address] = ReplicaSettings(
                    address,
                    # Replicas start at different producers, to spread the load.
                    tuple(
                        Input(
                            name,
                            rotate(producers[name], index),
                            name in standing,
                            early=name in asked,
                            trails=trails.get(name, (TIMED,)) if name in hands_on else (),
                            lossy=name in lossy,
                        )
                        for name in inputs
                    ),
                    tuple(
                        Output(
                            stream,
                            frozenset(operator.inputs),
                            consumers[stream],
                            ways.get(stream, ()),
                            memory.get(stream, ()),
                            pairs.get(stream, frozenset()),
                        )
                        for stream, operator in fragment.plan.outputs
                    ),
                    turned[1:] if fragment.standby is None else (),
                    self.timing,
                    fragment.while_failed,
                    fragment.while_stabilizing,
                    fragment.reconcile,
                    continuous=fragment.continuous,
                    delivery=fragment.delivery,
                    bounds=()
                    if fragment.bound is None
                    else tuple((stream, fragment.bound) for stream, _ in fragment.plan.outputs),
                )
        return settings

    def _consumers(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {stream: [] for stream in self.producers}
        for fragment in self.fragments:
            for stream in fragment.inputs:
                found[stream] += fragment.addresses
        for client in self.clients:
            found[client.input.stream].append(client.address)
        return {stream: tuple(names) for stream, names in found.items()}


def rotate(names: tuple[str, ...], by: int) -> tuple[str, ...]:
    by %= len(names)
    return names[by:] + names[:by]


def build(
    timing: Timing,
    sources: tuple[str, ...],
    fragments: tuple[Fragment, ...],
    client_streams: tuple[str, ...],
    job_us: int = 20_000,
    own_time: frozenset[str] = frozenset(),
    unordered: tuple[str, ...] = (),
) -> NetworkSpec:
    """Connect sources (s0, s1, ...), fragments and one client per watched stream.

    ``unordered``: the streams that a client without an order reads besides.
    """
    bare = NetworkSpec(timing, (), fragments, (), job_us)
    producers = bare.producers | {name: (f"entry{name[1:]}",) for name in sources}
    clients = tuple(
        ClientSettings(
            f"client{index}",
            Input(
                stream,
                producers[stream],
                stream in bare.standing,
                lossy=stream in bare.lossy,
            ),
            timing=timing,
        )
        for index, stream in enumerate(client_streams)
    )
    clients += tuple(
        ClientSettings(
            f"unordered{index}", Input(stream, producers[stream], True, early=True), timing=timing
        )
        for index, stream in enumerate(unordered)
    )
    unconnected = NetworkSpec(
        timing,
        tuple(EntrySettings(f"entry{name[1:]}", name, ()) for name in sources),
        fragments,
        clients,
        job_us,
    )
    consumers = unconnected._consumers()
    entries = tuple(
        EntrySettings(
            entry.address,
            entry.stream,
            consumers[entry.stream],
            boundary_interval_us=max(timing.bucket_us // 2, 50_000),
            own_time=entry.stream in own_time,
            retry_us=timing.retry_us,
        )
        for entry in unconnected.entries
    )
    return NetworkSpec(timing, entries, fragments, clients, job_us)


def generate_timing(random: Random) -> Timing:
    bucket_us = random.choice([100_000, 200_000, 250_000, 500_000])
    delay_us = random.choice([2, 3, 5]) * SECOND_US
    alpha = random.choice([0.6, 0.75, 0.9])
    return Timing(
        bucket_us=bucket_us,
        delay_us=delay_us,
        alpha=alpha,
        alpha_adapts=alpha == 0.9,
        heartbeat_interval_us=random.choice([200_000, 300_000]),
        partner_timeout_us=random.choice([100_000, 300_000, 1_500_000]),
        postpone_lease_us=random.choice([2, 6]) * SECOND_US,
        redo_buckets=random.choice([1, 2, 5, 20]),
        partial_redo_buckets=random.choice([8, 30, 150]),
    )


def generate(random: Random) -> NetworkSpec:
    """A random network of one to four levels."""
    timing = generate_timing(random)
    sources = random.randint(1, 4)
    available = [f"s{index}" for index in range(sources)]
    fragments = []
    for level in range(random.choice([1, 1, 2, 2, 3, 4])):
        for part in range(random.choice([1, 1, 2])):
            name = f"f{level}{part}"
            inputs = random.sample(available, min(len(available), random.randint(1, 3)))
            fragments.append(_generate_fragment(random, name, inputs, timing))
        available += [
            stream
            for fragment in fragments
            if fragment.name.startswith(f"f{level}")
            for stream, _ in fragment.plan.outputs
        ]
        # Deeper levels read mostly what the levels before produced.
        available = [one for one in available if one[0] == "f" or random.random() < 0.3] or ["s0"]
    used = {stream for fragment in fragments for stream in fragment.inputs}
    outputs = [stream for fragment in fragments for stream, _ in fragment.plan.outputs]
    ends = [stream for stream in outputs if stream not in used]
    watched = ends + [stream for stream in outputs if stream in used and random.random() < 0.2]
    # A slow engine makes reconciliation long, which is when most can go wrong.
    job_us = int(timing.bucket_us * random.choice([0.02, 0.1, 0.35, 0.35]))
    read = tuple(f"s{index}" for index in range(sources) if f"s{index}" in used)
    own_time = frozenset(stream for stream in read if random.random() < 0.2)
    return build(timing, read, tuple(fragments), tuple(watched), job_us, own_time)


def racing(random: Random, spec: NetworkSpec) -> NetworkSpec:
    """The same network, some of whose fragments race; some clients of those need no order."""
    fragments = tuple(
        replace(one, race=one.protection is Protection.ACTIVE and random.random() < 0.3)
        for one in spec.fragments
    )
    trails = replace(spec, fragments=fragments).trails
    # Those with a memory have a shape of their own.
    early = [one for one in trails if one[0] == "f" and not any(way.timed for way in trails[one])]
    return build(
        spec.timing,
        tuple(one.stream for one in spec.entries),
        fragments,
        tuple(one.input.stream for one in spec.clients),
        spec.job_us,
        frozenset(one.stream for one in spec.entries if one.own_time),
        tuple(stream for stream in early if random.random() < 0.5),
    )


def _generate_fragment(random: Random, name: str, inputs: list[str], timing: Timing) -> Fragment:
    outputs: list[tuple[str, Operator]] = []
    for index in range(random.choice([1, 1, 2])):
        mine = tuple(random.sample(inputs, random.randint(1, len(inputs))))
        outputs.append((f"{name}.{index}", generate_operator(random, mine, timing)))
    covered = {stream for _, operator in outputs for stream in operator.inputs}
    if set(inputs) - covered:
        outputs[0] = (outputs[0][0], generate_operator(random, tuple(inputs), timing))
    replicas = random.choice([1, 1, 2, 2, 2, 3, 3])
    standby = None
    if random.random() < 0.4:
        replicas = 2
        standby = _generate_standby(random, (f"{name}a", f"{name}b"))
    policies = [Policy.PROCESS, Policy.PROCESS, Policy.DELAY, Policy.SUSPEND]
    reconcile = random.choice([Reconcile.RESTORE, Reconcile.UNDO if standby is None else _KEEP])
    continuous = _generate_continuous(random, standby, timing) if reconcile is _KEEP else None
    if continuous is not None and continuous.replay is not None:
        outputs = [(stream, _lengthened(one, timing)) for stream, one in outputs]
        long = long_operators(tuple(inputs), timing)
        outputs += [(f"{name}.{number}", one) for number, one in enumerate(long, len(outputs))]
    return Fragment(
        name,
        Computation(tuple(outputs)),
        tuple(f"{name}{letter}" for letter in "abc"[:replicas]),
        random.choice(policies),
        random.choice(policies),
        reconcile,
        standby,
        continuous,
    )


def long_operators(inputs: tuple[str, ...], timing: Timing) -> tuple[Operator, ...]:
    """A join and long windows, of which some write each state once and for all."""
    long_us = LONG_BUCKETS * timing.bucket_us
    return Join(inputs, 3 * timing.bucket_us), Window(inputs, long_us), Distinct(inputs, long_us)


def _lengthened(operator: Operator, timing: Timing) -> Operator:
    """With a bound on the replay, windows may be long: nobody keeps input for as long as them."""
    if isinstance(operator, Window):
        return replace(operator, size_us=LONG_BUCKETS * timing.bucket_us)
    return operator


def _generate_continuous(
    random: Random, standby: StandbySettings | None, timing: Timing
) -> Continuous | None:
    """Continuous checkpoints for some of those that can have them."""
    asleep = standby is not None and standby.protection is Protection.HYBRID
    if asleep or (standby is not None and not standby.persist) or random.random() < 0.6:
        return None
    extent, replay = random.choice([(4, None), (None, 6), (8, 20), (None, None)])
    return Continuous(extent, replay, None, timing.bucket_us // 2, timing.bucket_us)


def _generate_standby(random: Random, copies: tuple[str, str]) -> StandbySettings:
    protection = random.choice([Protection.PASSIVE, Protection.HYBRID, Protection.HYBRID])
    sweeping = Checkpointing.SWEEPING
    return StandbySettings(
        copies,
        protection,
        random.choice([sweeping, sweeping, Checkpointing.INDIVIDUAL, Checkpointing.SYNCHRONOUS]),
        persist=random.random() < 0.6,
        heartbeat_interval_us=random.choice([100_000, 200_000]),
        misses_until_awake=1 if protection is Protection.HYBRID else 3,
        promote_after_us=random.choice([1, 3, 8]) * SECOND_US,
        checkpoint_interval_us=random.choice([200_000, 500_000, 1_000_000]),
        read_state_after_us=random.choice([1, 3]) * SECOND_US,
        benchmarks=random.random() < 0.2,
    )


def generate_operator(random: Random, inputs: tuple[str, ...], timing: Timing) -> Operator:
    kind = random.random()
    if kind < 0.35:
        return Window(inputs, timing.bucket_us * random.choice([1, 3, 10]) + random.choice([0, 77]))
    if kind < 0.6 and len(inputs) == 2:
        return Join(inputs, timing.bucket_us * random.choice([1, 4]))
    return Union(inputs, random.choice([-1, 0, 1]))
