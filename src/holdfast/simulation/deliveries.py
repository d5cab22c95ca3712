"""Networks some of whose fragments deliver at least once, or at most once (``core.delivery``).

What comes out tells which tuples went in: rows are handed on, or gathered in windows whose value
has a digit for each tuple (``executor.Gather``). So it can be seen that none is lost, or doubled.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from holdfast.core.settings import (
    SECOND_US,
    Delivery,
    Policy,
    Protection,
    Reconcile,
    StandbySettings,
)
from holdfast.simulation import special_networks
from holdfast.simulation.executor import Computation, Gather, Operator, Union
from holdfast.simulation.networks import Fragment, NetworkSpec, build, generate_timing
from holdfast.simulation.shards import in_shards

_LEAST, _MOST, _EXACTLY = Delivery.AT_LEAST_ONCE, Delivery.AT_MOST_ONCE, Delivery.EXACTLY_ONCE
# What may follow a fragment of each kind.
_AFTER = {
    _MOST: (_MOST,),
    _LEAST: (_LEAST, _EXACTLY),
    _EXACTLY: (_MOST, _LEAST),
}


def deliveries(random: Random) -> NetworkSpec:
    """Up to three fragments in a row, of which at least one is not exactly once."""
    timing = generate_timing(random)
    kind = random.choice([_EXACTLY, _EXACTLY, _LEAST, _MOST])
    fragments = []
    stream = "s0"
    levels = random.choice([2, 2, 3]) if kind is _EXACTLY else random.choice([1, 2])
    for level in range(levels):
        name = f"f{level}0"
        window_us = timing.bucket_us * random.choice([1, 3, 8])
        operators: list[Operator] = [Union((stream,))]
        if level == levels - 1:
            operators += [Gather((stream,), window_us)]
        outputs = tuple((f"{name}.{number}", one) for number, one in enumerate(operators))
        fragments.append(fragment_of(random, name, Computation(outputs), kind))
        stream, kind = f"{name}.0", random.choice(_AFTER[kind])
    last = fragments[-1]
    watched = tuple(stream for stream, _ in last.plan.outputs)
    job_us = int(timing.bucket_us * random.choice([0.02, 0.1, 0.35]))
    spec = build(timing, ("s0",), tuple(fragments), watched, job_us)
    if random.random() < 0.4:
        return in_shards(spec, {random.randrange(len(fragments)): random.choice([2, 3])})
    return spec


def rescaled_deliveries(random: Random) -> NetworkSpec:
    """A fragment in shards that delivers at least once, alone or behind one that is exactly once.

    Windows are long, so that much is handed over.
    """
    return _rescaled(random, _LEAST, (_EXACTLY,))


def rescaled_at_most_once(random: Random) -> NetworkSpec:
    """A fragment in shards that delivers at most once, alone or behind another one."""
    return _rescaled(random, _MOST, (_EXACTLY, _MOST))


def rescaled_somehow(random: Random) -> NetworkSpec:
    """Any of the networks whose number of shards can change."""
    kinds = (
        special_networks.rescaled_ring,
        special_networks.rescaled_copies,
        special_networks.rescaled_parts,
        special_networks.rescaled_windows,
        rescaled_deliveries,
        rescaled_at_most_once,
    )
    return random.choice(kinds)(random)


def _rescaled(random: Random, kind: Delivery, before: tuple[Delivery, ...]) -> NetworkSpec:
    timing = generate_timing(random)
    fragments, stream = [], "s0"
    if random.random() < 0.5:
        first = random.choice(before) if len(before) > 1 else before[0]
        fragments.append(
            fragment_of(random, "f00", Computation((("f00.0", Union(("s0",))),)), first)
        )
        stream = "f00.0"
    name, window_us = f"f{len(fragments)}0", timing.bucket_us * random.choice([8, 20])
    operators: list[Operator] = [Union((stream,)), Gather((stream,), window_us)]
    outputs = tuple((f"{name}.{number}", one) for number, one in enumerate(operators))
    fragments.append(fragment_of(random, name, Computation(outputs), kind))
    job_us = int(timing.bucket_us * random.choice([0.02, 0.1, 0.35]))
    watched = tuple(stream for stream, _ in outputs)
    spec = build(timing, ("s0",), tuple(fragments), watched, job_us)
    return in_shards(spec, {len(fragments) - 1: random.choice([1, 2, 3])})


def fragment_of(random: Random, name: str, plan: Computation, delivery: Delivery) -> Fragment:
    """A fragment of a kind, with one of the protections that it may have."""
    copies = [Protection.NONE, Protection.PASSIVE]
    if delivery is _EXACTLY:
        copies += [Protection.ACTIVE, Protection.HYBRID]
    protection = random.choice(copies)
    one = Fragment(
        name,
        plan,
        (f"{name}a",) if protection is Protection.NONE else (f"{name}a", f"{name}b"),
        Policy.PROCESS,
        random.choice([Policy.PROCESS, Policy.DELAY]),
        Reconcile.RESTORE,
        delivery=delivery,
    )
    if protection not in (Protection.PASSIVE, Protection.HYBRID):
        return one
    pair = StandbySettings(
        (f"{name}a", f"{name}b"),
        protection,
        persist=random.random() < 0.7,
        misses_until_awake=1 if protection is Protection.HYBRID else 3,
        promote_after_us=random.choice([1, 3]) * SECOND_US,
    )
    return replace(one, standby=pair)
