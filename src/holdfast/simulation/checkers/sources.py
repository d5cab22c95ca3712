"""Every tuple of a source is in its entry point's stream once, in the order it was made.

One with a time of its own is not refused for it again and again, no tuple of it is further ahead
of the clock than is allowed, a producer that has nothing to say holds nobody back for long, and
what a producer that was never quiet brings within the lateness is not late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.settings import SECOND_US
from holdfast.core.source_time import FAR
from holdfast.simulation.checkers import Violation
from holdfast.simulation.entry_process import EntryProcess
from holdfast.simulation.own_time import OwnTimeSource

if TYPE_CHECKING:
    from holdfast.simulation.world import World

_LONGEST_WAIT_US = 5 * SECOND_US
# A source is looked at as often as it makes tuples.
_TICK_US = SECOND_US


def check(world: World) -> None:
    for entry in world.entries.values():
        stream = entry.settings.stream
        taken = [(key, value) for _, key, value, *_ in world.truth.rows.get(stream, [])]
        made = entry.source.made[: len(taken)]
        if taken != made:
            differs = (
                i for i, pair in enumerate(zip(taken, made, strict=False)) if pair[0] != pair[1]
            )
            index = next(differs, len(made))
            raise Violation(
                "no loss, no duplicate",
                f"{stream} has {taken[index]} as tuple {index}, its source made "
                f"{made[index : index + 1]}",
            )
        if isinstance(entry.source, OwnTimeSource):
            _check_future(world, stream, entry.source)
            _check_lateness(stream, entry.source)
        since = entry.source.waiting_since
        now = world.clock.now + entry.ahead_us
        # Who has lost its log waits for tuples that its source has forgotten.
        lost = entry.disk_lost
        if since is not None and now - since > _LONGEST_WAIT_US and not lost:
            raise Violation(
                "no loss",
                f"{stream}: a tuple has been offered for {(now - since) / 1e6:.1f} s, and is not "
                f"taken",
            )


def _check_future(world: World, stream: str, source: OwnTimeSource) -> None:
    newest = max((row[0] for row in world.truth.rows.get(stream, [])), default=0)
    if newest > world.clock.now + (source.settings.future_limit_us or 0):
        raise Violation(
            "no tuple of the future",
            f"{stream} has a tuple of {newest / 1e6:.3f} s, now {world.clock.now / 1e6:.3f} s",
        )


def _check_lateness(stream: str, source: OwnTimeSource) -> None:
    for lane, stime, oldest in source.wronged:
        raise Violation(
            "in time within the lateness",
            f"{stream}: a row of {stime / 1e6:.3f} s was late, though {lane} may bring rows from "
            f"{oldest / 1e6:.3f} s on",
        )


def sample(world: World) -> None:
    """While a world goes on: no source with a time of its own stands still."""
    for entry in world.entries.values():
        if isinstance(entry.source, OwnTimeSource) and entry.running and not entry.slow:
            _check_reached(entry, entry.source, world.clock.now)


def _check_reached(entry: EntryProcess, source: OwnTimeSource, now: int) -> None:
    settings = source.settings
    # What a producer said last may have been ahead of the clock, and then it moved nothing.
    behind_us = 4 * (settings.quiet_us or 0) + 2 * settings.lateness_us + settings.bucket_us
    behind_us += _TICK_US
    waited = now - entry.disturbed_at > behind_us and source.time.newest > -FAR
    if waited and source.reached < now - behind_us:
        raise Violation(
            "a quiet producer holds nobody back",
            f"{entry.settings.stream} is complete up to {source.reached / 1e6:.3f} s, now "
            f"{now / 1e6:.3f} s; idle are {source.time.idle}",
        )
