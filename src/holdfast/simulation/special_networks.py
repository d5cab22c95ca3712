"""Networks for shapes of schedules that would hardly do anything to others."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from holdfast.core.heirs import Heirs
from holdfast.core.settings import (
    SECOND_US,
    Bound,
    Checkpointing,
    Continuous,
    Policy,
    Protection,
    Reconcile,
    StandbySettings,
    Then,
    Timing,
)
from holdfast.simulation.executor import Computation, Distinct, Join, Operator, Union, Window
from holdfast.simulation.networks import (
    Fragment,
    NetworkSpec,
    build,
    generate_operator,
    generate_timing,
    long_operators,
)
from holdfast.simulation.shards import built_of, in_shards, primary_at_times

_STANDING_BY = (Protection.PASSIVE, Protection.HYBRID)


def slow_redo(random: Random) -> NetworkSpec:
    """One fragment of two or three replicas that take seconds to redo minutes, and a short X."""
    timing = Timing(
        bucket_us=250_000, delay_us=2 * SECOND_US, partner_timeout_us=100_000, redo_buckets=2
    )
    operator = generate_operator(random, ("s0", "s1"), timing)
    fragment = Fragment(
        "f00",
        Computation((("f00.0", operator),)),
        ("f00a", "f00b", "f00c")[: random.choice([2, 3])],
        Policy.PROCESS,
        Policy.PROCESS,
        Reconcile.RESTORE,
    )
    return build(timing, ("s0", "s1"), (fragment,), ("f00.0",), job_us=100_000)


def two_copies(random: Random) -> NetworkSpec:
    """Two copies whose checkpoints are on disk, packed or window by window, and nothing else.

    The one that comes back is soon far enough behind to take the other's state, and is not
    replaced for good before it is back. It redoes what it missed in many small jobs.
    """
    timing = replace(generate_timing(random), redo_buckets=1)
    passive = random.random() < 0.5
    pair = StandbySettings(
        ("f00a", "f00b"),
        Protection.PASSIVE if passive else Protection.HYBRID,
        random.choice([Checkpointing.SWEEPING, Checkpointing.SYNCHRONOUS]),
        heartbeat_interval_us=100_000,
        misses_until_awake=3 if passive else 1,
        promote_after_us=8 * SECOND_US,
        checkpoint_interval_us=random.choice([200_000, 1_000_000]),
        read_state_after_us=SECOND_US,
    )
    continuous = None
    if passive and random.random() < 0.8:
        extent, replay = random.choice([(4, None), (None, 6), (8, 20)])
        continuous = Continuous(extent, replay, None, timing.bucket_us // 2, timing.bucket_us)
    windows = Window(("s0", "s1"), timing.bucket_us * random.choice([1, 3, 10]))
    job_us = int(timing.bucket_us * random.choice([0.1, 0.2, 0.35]))
    return _one_fragment(timing, job_us, (windows,), ("f00a", "f00b"), pair, continuous)


def ring(random: Random) -> NetworkSpec:
    """A fragment in shards, whose copies are all of one kind, and nothing else."""
    return _ring(random, [Protection.NONE, Protection.ACTIVE, *_STANDING_BY])


def ring_of_copies(random: Random) -> NetworkSpec:
    """A ring each of whose shards has its checkpoints at several others, if it has so many."""
    spec = _ring(random, [*_STANDING_BY], shards=(3, 4), spread=False)
    others = random.choice([1, 2, 2, 3])
    shards = sum(one.plan.shard is not None for one in spec.fragments)
    names = "abcd"[: min(others, shards - 1) + 1]
    return _copied(spec, names, random.random() < 0.7, random.random() < 0.4)


def _copied(spec: NetworkSpec, letters: str, persist: bool, by_load: bool) -> NetworkSpec:
    """The same with a copy of each shard for every letter."""

    def copied(one: Fragment) -> Fragment:
        if one.standby is None:
            return one
        addresses = tuple(f"{one.name}{letter}" for letter in letters)
        standby = replace(
            one.standby, copies=addresses, persist=persist, by_load=by_load, returns=True
        )
        return replace(one, addresses=addresses, standby=standby)

    return built_of(spec, tuple(copied(one) for one in spec.fragments))


def rescaled_ring(random: Random) -> NetworkSpec:
    """The same, of protections whose number of shards can change, with much to hand over.

    Of those with two replicas each, the ones that begin with three shards race.
    """
    spec = _ring(random, [Protection.NONE, Protection.ACTIVE], (10, 30))
    shards = [one for one in spec.fragments if one.plan.shard is not None]
    if len(shards) != 3 or len(shards[0].addresses) == 1:
        return spec
    racing = (replace(one, race=one.plan.shard is not None) for one in spec.fragments)
    return replace(spec, fragments=tuple(racing))


def rescaled_copies(random: Random) -> NetworkSpec:
    """The same of shards whose copies stand by, one or two of each, on disk or in memory."""
    spec = _ring(random, [*_STANDING_BY], (10, 30), shards=(2, 3, 4), spread=False)
    shards = sum(one.plan.shard is not None for one in spec.fragments)
    letters = "abc" if shards > 2 and random.random() < 0.3 else "ab"
    return _copied(spec, letters, random.random() < 0.8, random.random() < 0.3)


def rescaled_parts(random: Random) -> NetworkSpec:
    """The same of shards that are in parts, each with an heir of its own, once there are three."""
    return _ring(random, [*_STANDING_BY], (10, 30), heirs=Heirs.SPREAD)


def rescaled_windows(random: Random) -> NetworkSpec:
    """Shards whose checkpoints are continuous, of every protection, with windows of many ages."""
    timing = generate_timing(random)
    long_us, inputs = timing.bucket_us * random.choice([10, 30]), ("s0", "s1")
    windows = Window(inputs, long_us + random.choice([0, 77]))
    operators: list[Operator] = [
        windows,
        Join(inputs, timing.bucket_us * 4),
        Distinct(inputs, long_us),
    ]
    random.shuffle(operators)
    extent, replay = random.choice([(4, None), (None, 6), (8, 20)])
    continuous = Continuous(extent, replay, None, timing.bucket_us // 2, timing.bucket_us)
    protections = [Protection.NONE, Protection.ACTIVE, *_STANDING_BY]
    protection = random.choice(protections)
    copies = ("f00a",) if protection is Protection.NONE else ("f00a", "f00b")
    job_us = int(timing.bucket_us * random.choice([0.02, 0.1, 0.35]))
    pair = _standing_by(random, protection)
    spec = _one_fragment(timing, job_us, tuple(operators[:2]), copies, pair, continuous)
    shards = {0: random.choice([1, 2, 3])}
    return in_shards(spec, shards, primary=primary_at_times(random))


def _standing_by(random: Random, protection: Protection) -> StandbySettings | None:
    if protection not in _STANDING_BY:
        return None
    return StandbySettings(
        ("f00a", "f00b"),
        protection,
        misses_until_awake=1 if protection is Protection.HYBRID else 3,
        promote_after_us=random.choice([1, 3]) * SECOND_US,
    )


def _ring(
    random: Random,
    protections: list[Protection],
    windows: tuple[int, ...] = (1, 3, 10),
    shards: tuple[int, ...] = (2, 3, 4),
    spread: bool = True,
    heirs: Heirs | None = None,
) -> NetworkSpec:
    timing = generate_timing(random)
    inputs = ("s0", "s1")
    operators: list[Operator] = [
        Window(inputs, timing.bucket_us * random.choice(windows) + random.choice([0, 77])),
        Join(inputs, timing.bucket_us * random.choice([1, 4])),
        Union(inputs),
    ]
    protection = random.choice(protections)
    pair = _standing_by(random, protection)
    copies = ("f00a",) if protection is Protection.NONE else ("f00a", "f00b")
    job_us = int(timing.bucket_us * random.choice([0.02, 0.1, 0.35]))
    spec = _one_fragment(timing, job_us, tuple(operators), copies, pair, None)
    number = random.choice(shards)
    if heirs is None:
        parted = pair is not None and spread and number < 4
        heirs = random.choice([Heirs.NEXT, Heirs.SPREAD]) if parted else Heirs.NEXT
    whole = heirs is Heirs.NEXT and primary_at_times(random)
    return in_shards(spec, {0: number}, heirs, whole)


def long_windows(random: Random) -> NetworkSpec:
    """A replica with continuous checkpoints, whose windows are longer than input is to be kept."""
    timing = generate_timing(random)
    continuous = Continuous(None, 6, None, timing.bucket_us // 2, timing.bucket_us)
    job_us = int(timing.bucket_us * random.choice([0.02, 0.1, 0.35]))
    operators = long_operators(("s0", "s1"), timing)
    return _one_fragment(timing, job_us, operators, ("f00a",), None, continuous)


def racing_unions(random: Random) -> NetworkSpec:
    """Unions that race, one behind the other, with clients that need no order, and windows beside.

    What reaches the second one comes by two trails at least, and by some of them twice.
    """
    timing = generate_timing(random)
    sources = ("s0", "s1", "s2")[: random.choice([2, 3, 3])]
    policies = [Policy.PROCESS, Policy.PROCESS, Policy.DELAY, Policy.SUSPEND]

    def racing(name: str, *outputs: tuple[str, Operator]) -> Fragment:
        copies = tuple(f"{name}{letter}" for letter in "abc"[: random.choice([2, 2, 3])])
        while_failed, while_stabilizing = random.choice(policies), random.choice(policies)
        keeps = random.choice([Reconcile.RESTORE, Reconcile.UNDO])
        return Fragment(
            name, Computation(outputs), copies, while_failed, while_stabilizing, keeps, race=True
        )

    def union(*inputs: str) -> Union:
        return Union(inputs, random.choice([-1, 0, 1]))

    read = random.choice([("f00.0", sources[-1]), ("f00.0", "f00.1"), ("f00.1", "f00.0", "s1")])
    made = (("f00.0", union(*sources[:2])), ("f00.1", union(sources[0])))
    first = racing("f00", *(one for one in made if one[0] in read))
    windows = Window(("f00.0",), timing.bucket_us * random.choice([1, 3]))
    second = racing("f10", ("f10.0", union(*read)), ("f10.1", windows))
    job_us = int(timing.bucket_us * random.choice([0.1, 0.35]))
    used = {*first.inputs, *second.inputs}
    return build(
        timing,
        tuple(name for name in sources if name in used),
        (first, second),
        ("f10.0", "f10.1"),
        job_us,
        frozenset(name for name in sources if name in used and random.random() < 0.2),
        ("f00.0", "f10.0"),
    )


def racing_memories(random: Random) -> NetworkSpec:
    """Windows and joins of some of the inputs of fragments that race, and unions behind them.

    Sometimes the first fragment does not race: what it gives is known by its times all the same.
    """
    timing = generate_timing(random)
    policies = [Policy.PROCESS, Policy.PROCESS, Policy.DELAY, Policy.SUSPEND]

    def racing(name: str, races: bool, *outputs: tuple[str, Operator]) -> Fragment:
        copies = tuple(f"{name}{letter}" for letter in "abc"[: random.choice([2, 2, 3])])
        while_failed, while_stabilizing = random.choice(policies), random.choice(policies)
        keeps = random.choice([Reconcile.RESTORE, Reconcile.UNDO])
        return Fragment(
            name, Computation(outputs), copies, while_failed, while_stabilizing, keeps, race=races
        )

    windows = Window(("s0",), timing.bucket_us * random.choice([1, 2, 3]))
    pairs = Join(("s0", "s1"), timing.bucket_us * random.choice([1, 2]))
    united = Union(("s1", "s2"), random.choice([-1, 0]))
    first = racing(
        "f00",
        random.random() < 0.7,
        ("f00.0", windows),
        ("f00.1", pairs),
        ("f00.2", united),
    )
    behind = Union(random.choice([("f00.0", "s2"), ("f00.1", "f00.0"), ("f00.0", "f00.2")]), -1)
    again = Window(("f00.1",), timing.bucket_us * random.choice([1, 3]))
    # Of what comes early where the first one races.
    far = Join(("f00.2", "s0"), timing.bucket_us)
    second = racing("f10", True, ("f10.0", behind), ("f10.1", again), ("f10.2", far))
    unordered = ["f10.0", "f10.1", "f10.2"] + ["f00.0", "f00.1"] * first.race
    job_us = int(timing.bucket_us * random.choice([0.1, 0.35]))
    sources = ("s0", "s1", "s2")
    return build(
        timing,
        sources,
        (first, second),
        ("f10.0", "f00.1", "f00.2"),
        job_us,
        frozenset(name for name in sources if random.random() < 0.2),
        tuple(unordered),
    )


def racing_chain(random: Random) -> NetworkSpec:
    """Racing fragments in a row, of two or three replicas each, read by two clients."""
    # Who waits long for missing tuples would long not notice that one feed is late.
    longer = random.choice([6, 20, 30]) * SECOND_US
    timing = replace(generate_timing(random), delay_us=longer)
    fast = (Policy.PROCESS, Policy.PROCESS)

    def racing(name: str, operator: Operator) -> Fragment:
        copies = tuple(f"{name}{letter}" for letter in "abc"[: random.choice([2, 3, 3])])
        keeps = random.choice([Reconcile.RESTORE, Reconcile.UNDO])
        return Fragment(
            name, Computation(((f"{name}.0", operator),)), copies, *fast, keeps, race=True
        )

    first = racing("f00", Union(("s0", "s1"), random.choice([-1, 0])))
    second = racing("f10", Window(("f00.0",), timing.bucket_us * random.choice([1, 3])))
    third = racing("f20", Union(("f10.0",), -1))
    fragments = (first, second, third)[: random.choice([2, 3])]
    job_us = int(timing.bucket_us * random.choice([0.05, 0.2]))
    outputs = ("f00.0", f"{fragments[-1].name}.0")
    return build(timing, ("s0", "s1"), fragments, outputs, job_us)


def bounded_unions(random: Random) -> NetworkSpec:
    """Two fragments of two replicas each, of whose tentative tuples little is kept."""
    timing = replace(generate_timing(random), delay_us=2 * SECOND_US)
    few = random.choice([3, 8])
    size = Bound(1_000 * few, None, Then.DROP)
    age = Bound(None, few * SECOND_US, Then.DROP)
    fast = (Policy.PROCESS, random.choice([Policy.PROCESS, Policy.DELAY]))

    def bounded(name: str, operator: Operator) -> Fragment:
        keeps = random.choice([Reconcile.RESTORE, Reconcile.UNDO])
        copies, plan = (f"{name}a", f"{name}b"), Computation(((f"{name}.0", operator),))
        return Fragment(name, plan, copies, *fast, keeps, bound=random.choice([size, age]))

    first = bounded("f00", Union(("s0", "s1"), random.choice([-1, 0])))
    second = bounded("f10", Window(("f00.0",), timing.bucket_us * random.choice([1, 3])))
    fragments = (first, second)[: random.choice([1, 2])]
    job_us = int(timing.bucket_us * random.choice([0.05, 0.2]))
    return build(timing, ("s0", "s1"), fragments, (f"{fragments[-1].name}.0", "f00.0"), job_us)


def bounded_streams(random: Random) -> NetworkSpec:
    """One or two fragments; of sources, and of streams that some are to wait for, little is kept.

    Replicas that are away for long are let go of, or waited for; clients are waited for.
    """
    timing = replace(generate_timing(random), delay_us=2 * SECOND_US)
    fast = (Policy.PROCESS, random.choice([Policy.PROCESS, Policy.DELAY]))
    few = random.choice([15, 40])

    def bound(then: Then, *readers: Fragment) -> Bound:
        groups = tuple(one.addresses for one in readers)
        return Bound(1_000 * few, None, then, 3 * SECOND_US, groups)

    def any_bound(*readers: Fragment) -> Bound | None:
        kind = random.choice([Then.RETIRE, Then.RETIRE, Then.BLOCK, None])
        return None if kind is None else bound(kind, *readers)

    def made(name: str, operator: Operator) -> Fragment:
        replicas = tuple(f"{name}{letter}" for letter in "abc"[: random.choice([1, 2, 2, 3])])
        standby = None
        if len(replicas) == 2 and random.random() < 0.4:
            protection = random.choice([Protection.PASSIVE, Protection.HYBRID])
            standby = StandbySettings(replicas, protection, persist=random.random() < 0.7)
        keeps = Reconcile.RESTORE if standby else random.choice([*Reconcile])
        plan = Computation(((f"{name}.0", operator),))
        return Fragment(name, plan, replicas, *fast, keeps, standby)

    first = made("f00", Union(("s0", "s1"), random.choice([-1, 0])))
    last = made("f10", Window(("f00.0",), timing.bucket_us * random.choice([1, 3])))
    if random.random() < 0.5:
        fragments: tuple[Fragment, ...] = (replace(first, bound=bound(Then.BLOCK)),)
    else:
        fragments = (
            replace(first, bound=any_bound(last)),
            replace(last, bound=random.choice([None, bound(Then.BLOCK)])),
        )
    job_us = int(timing.bucket_us * random.choice([0.05, 0.2]))
    watched = (f"{fragments[-1].name}.0",)
    spec = build(timing, ("s0", "s1"), fragments, watched, job_us)
    entries = tuple(replace(one, bound=any_bound(fragments[0])) for one in spec.entries)
    return replace(spec, entries=entries)


def chain(random: Random) -> NetworkSpec:
    """Two fragments in a row, of two or three replicas each, and a short X."""
    timing = replace(generate_timing(random), delay_us=2 * SECOND_US)
    fast = (Policy.PROCESS, Policy.PROCESS)

    def active(name: str, operator: Operator) -> Fragment:
        copies = tuple(f"{name}{letter}" for letter in "abc"[: random.choice([2, 2, 3])])
        keeps = random.choice([Reconcile.RESTORE, Reconcile.UNDO])
        return Fragment(name, Computation(((f"{name}.0", operator),)), copies, *fast, keeps)

    first = active("f00", Union(("s0", "s1"), random.choice([-1, 0])))
    second = active("f10", Window(("f00.0",), timing.bucket_us * random.choice([1, 3])))
    job_us = int(timing.bucket_us * random.choice([0.05, 0.2]))
    return build(timing, ("s0", "s1"), (first, second), ("f10.0",), job_us)


def _one_fragment(
    timing: Timing,
    job_us: int,
    operators: tuple[Operator, ...],
    copies: tuple[str, ...],
    pair: StandbySettings | None,
    continuous: Continuous | None,
) -> NetworkSpec:
    outputs = tuple((f"f00.{number}", one) for number, one in enumerate(operators))
    policy = Policy.PROCESS
    fragment = Fragment(
        "f00", Computation(outputs), copies, policy, policy, Reconcile.RESTORE, pair, continuous
    )
    return build(timing, ("s0", "s1"), (fragment,), tuple(name for name, _ in outputs), job_us)
