"""Shapes of schedules in which little happens, and the networks of one of them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from holdfast.core.settings import SECOND_US, Policy, Reconcile
from holdfast.simulation.executor import Computation, Window
from holdfast.simulation.faults import Fault, FaultKind, Targets
from holdfast.simulation.networks import Fragment, NetworkSpec, build, generate_timing


def _steady(random: Random, layout: Targets) -> list[Fault]:
    """Minutes in which hardly anything happens: what is kept must stay small by itself."""
    faults = []
    for time in (5 * SECOND_US, 110 * SECOND_US):
        end = time + int(random.uniform(0.3, 2) * SECOND_US)
        faults.append(Fault(FaultKind.CRASH, time, end, (random.choice(layout.groups)[0],)))
    return faults


def _sparse(random: Random, layout: Targets) -> list[Fault]:
    """Entry points are away in turn, while the others have a tuple now and then.

    When a window ends, often no tuple waits any more.
    """
    time = 5 * SECOND_US
    faults = []
    for _ in range(random.randint(2, 3)):
        end = time + int(random.uniform(6, 20) * SECOND_US)
        faults.append(Fault(FaultKind.PARTITION, time, end, (random.choice(layout.entries),)))
        if random.random() < 0.5:
            start = time + int(random.random() * (end - time))
            until = start + int(random.uniform(0.3, 3) * SECOND_US)
            hit = random.choice(random.choice(layout.groups))
            faults.append(Fault(FaultKind.CRASH, start, until, (hit,)))
        time = max(one.end for one in faults) + int(random.uniform(4, 12) * SECOND_US)
    return faults


def sparse_windows(random: Random) -> NetworkSpec:
    """Windows over several sources, and windows of their results: longer ones, or shorter."""
    timing = replace(generate_timing(random), delay_us=random.choice([2, 3]) * SECOND_US)
    sources = ("s0", "s1", "s2")[: random.choice([2, 3])]
    policies = [Policy.PROCESS, Policy.DELAY]

    def windows(name: str, inputs: tuple[str, ...]) -> Fragment:
        size_us = int(timing.bucket_us * random.choice([1, 3, 10]) + random.choice([0, 77]))
        copies = tuple(f"{name}{letter}" for letter in "ab"[: random.choice([1, 2])])
        chosen = (random.choice(policies), random.choice(policies))
        keeps = random.choice([Reconcile.RESTORE, Reconcile.UNDO])
        plan = Computation(((f"{name}.0", Window(inputs, size_us)),))
        return Fragment(name, plan, copies, *chosen, keeps)

    first = windows("f00", sources)
    second = windows("f10", random.choice([("f00.0",), ("f00.0", "s0")]))
    fragments = (first, second)[: random.choice([1, 2])]
    job_us = int(timing.bucket_us * random.choice([0.02, 0.1]))
    return build(timing, sources, fragments, (f"{fragments[-1].name}.0",), job_us)
