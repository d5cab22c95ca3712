"""Bounded buffers: after healing nothing old is kept, in memory or on disk.

A stable tuple is kept until every consumer has recorded that it no longer depends on it, so
what is kept reaches back by the longest window of the consumers, the interval of recovery
records and a few heartbeats, per level; not by the length of the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.settings import SECOND_US
from holdfast.simulation.checkers import Violation
from holdfast.simulation.executor import Distinct, Window

if TYPE_CHECKING:
    from holdfast.simulation.world import World


def check(world: World) -> None:
    timing = world.spec.timing
    longest_window_us = max(11 * timing.bucket_us, _longest_window_us(world))
    oldest = world.clock.now - longest_window_us - 2 * timing.delay_us - 8 * SECOND_US
    for address, process in world.replicas.items():
        served = process.driver.served
        copies = process.replica.copies.values() if process.replica is not None else ()
        held = [one for copy in copies for one in copy.stable]
        tentative = [one for copy in copies for one in copy.tentative]
        _require(address, "input", [one.header.stime_max for one in held + tentative], oldest)
        for stream in served.values():
            kept = [frame.header.stime_max for frame in stream.stable]
            _require(address, stream.stream, kept, oldest)
            _require(address, stream.stream, [f.header.stime_max for f in stream.tentative], oldest)
    for address, entry in world.entries.items():
        kept = [frame.header.stime_max for frame in entry.driver.served.stable]
        _require(address, entry.settings.stream, kept, oldest)
    for address, one in world.processes.items():
        if address in world.authority.gone:
            continue
        limit = 400 + 20 * (2 * timing.delay_us + longest_window_us) // timing.bucket_us
        if one.disk.frame_count() > limit:
            raise Violation("bounded buffers", f"{address} keeps {one.disk.frame_count()} on disk")


def _longest_window_us(world: World) -> int:
    """With continuous checkpoints small windows are not written but replayed, however long."""
    operators = [one for each in world.spec.fragments for _, one in each.plan.outputs]
    return max((one.size_us for one in operators if isinstance(one, Window | Distinct)), default=0)


def _require(address: str, what: str, stimes: list[int], oldest: int) -> None:
    if stimes and min(stimes) < oldest:
        raise Violation(
            "bounded buffers",
            f"{address} keeps {len(stimes)} frames of {what} from {min(stimes) / 1e6:.3f} s, "
            f"though {oldest / 1e6:.3f} s is old enough to forget",
        )
