"""The shape of schedules for machines that other programs keep busy, and its networks."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from holdfast.core.settings import SECOND_US, Policy, Reconcile
from holdfast.simulation.executor import Computation, Operator, Union, Window
from holdfast.simulation.faults import Fault, FaultKind, Targets
from holdfast.simulation.networks import Fragment, NetworkSpec, build, generate_timing


def _busy(random: Random, layout: Targets) -> list[Fault]:
    """All machines become busy, some are idle again, and entry points are away meanwhile.

    The first failure finds replicas that have not learned yet what jobs take now; X is promised all
    the same.
    """
    time = int(random.uniform(8, 20) * SECOND_US)
    faults = []
    for _ in range(random.randint(2, 3)):
        start = time + int(random.uniform(-2, 15) * SECOND_US)
        end = start + int(random.choice([3, 8, 20]) * random.uniform(0.7, 1.5) * SECOND_US)
        faults.append(Fault(FaultKind.PARTITION, start, end, (random.choice(layout.entries),)))
        time = end + int(random.uniform(6, 20) * SECOND_US)
    begins = int(random.uniform(5, 15) * SECOND_US)
    for server in layout.servers:
        ends = begins + int(random.choice([0.5, 1]) * (time - begins))
        faults.append(Fault(FaultKind.BUSY, begins, ends, (server,)))
    return faults


def busy_unions(random: Random) -> NetworkSpec:
    """One or two fragments of two replicas, every policy that promises something, α adapting."""
    timing = replace(
        generate_timing(random),
        delay_us=random.choice([3, 5]) * SECOND_US,
        bucket_us=random.choice([100_000, 200_000]),
        alpha=0.9,
        alpha_adapts=True,
        partner_timeout_us=300_000,
        redo_buckets=random.choice([5, 20, 50]),
    )
    answering = [Policy.PROCESS, Policy.DELAY]

    def answers(name: str, operator: Operator) -> Fragment:
        policies = (random.choice(answering), random.choice(answering))
        keeps = random.choice([Reconcile.RESTORE, Reconcile.UNDO])
        copies = (f"{name}a", f"{name}b")
        return Fragment(name, Computation(((f"{name}.0", operator),)), copies, *policies, keeps)

    first = answers("f00", Union(("s0", "s1", "s2"), random.choice([-1, 0])))
    second = answers("f10", Window(("f00.0",), timing.bucket_us * random.choice([1, 3])))
    fragments = (first, second)[: random.choice([1, 1, 2])]
    job_us = int(timing.bucket_us * random.choice([0.1, 0.35]))
    return build(timing, ("s0", "s1", "s2"), fragments, (f"{fragments[-1].name}.0",), job_us)
