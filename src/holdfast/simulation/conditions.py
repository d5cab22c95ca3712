"""How good the machines of a simulated world are."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from holdfast.core.settings import SECOND_US
from holdfast.simulation.faults import Schedule
from holdfast.simulation.network import Quality


@dataclass(frozen=True)
class Conditions:
    """How good the machines are, and how closely they are watched."""

    longest_append_us: int
    skew_us: int
    # How long packing a checkpoint may take.
    longest_pack_us: int = 10_000
    # How long a whole one is under way besides.
    whole_us: int = 0
    job_failure_rate: float = 0.002
    sample_us: int = SECOND_US // 2
    # All processes start within this time.
    start_us: int = 300_000
    quality: Quality = field(default_factory=Quality)

    @classmethod
    def draw(cls, random: Random, schedule: Schedule) -> Conditions:
        gentle = schedule.gentle
        longest_append_us = random.choice([1_000, 10_000, 100_000])
        if schedule.slow_disks:
            longest_append_us = random.choice([100_000, 200_000, 300_000])
        skew_us = 0 if gentle else random.choice([0, 50_000, 200_000])
        quality = Quality(random.choice([3, 10, 40]), 0.0 if gentle else 0.1)
        longest_pack_us = random.choice([5_000, 50_000, 1_000_000])
        failures = 0.05 if schedule.failing_jobs else cls.job_failure_rate
        whole_us = int(random.uniform(3.5, 9) * SECOND_US) if schedule.large_states else 0
        rest = (longest_pack_us, whole_us, failures)
        return cls(longest_append_us, skew_us, *rest, quality=quality)
