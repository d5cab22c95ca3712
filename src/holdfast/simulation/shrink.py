"""Shrinking: from a schedule that breaks something to a short one that still does.

A run is repeated with faults left out, then with faults shortened, as long as it ends in the
same verdict. Every try is a whole run from the same seed, so the number of tries is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from holdfast.simulation.faults import Fault
from holdfast.simulation.run import Result, Scenario, run


def shrink(scenario: Scenario, failed: Result, tries_max: int = 60) -> tuple[Scenario, Result]:
    """The smallest failing scenario found, and how it fails."""
    tries = 0
    progress = True
    while progress and tries < tries_max:
        progress = False
        for faults in _smaller(scenario.schedule.faults):
            tries += 1
            schedule = replace(scenario.schedule, faults=faults)
            candidate = replace(scenario, schedule=schedule)
            result = run(candidate)
            if result.verdict is failed.verdict:
                scenario, failed, progress = candidate, result, True
                break
            if tries >= tries_max:
                break
    return scenario, failed


def _smaller(faults: tuple[Fault, ...]) -> Iterator[tuple[Fault, ...]]:
    """Ever smaller steps: half of the faults, one fault, half of a fault's duration."""
    half = len(faults) // 2
    if half:
        yield faults[:half]
        yield faults[half:]
    for index in range(len(faults)):
        yield faults[:index] + faults[index + 1 :]
    for index, fault in enumerate(faults):
        duration = fault.end - fault.start
        if duration > 500_000:
            shorter = replace(fault, end=fault.start + duration // 2)
            yield (*faults[:index], shorter, *faults[index + 1 :])
