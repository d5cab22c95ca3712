"""Every tuple of a source is in its entry point's stream once, in the order it was made.

One with a time of its own is not refused for it again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.settings import SECOND_US
from holdfast.simulation.checkers import Violation

if TYPE_CHECKING:
    from holdfast.simulation.world import World

_LONGEST_WAIT_US = 5 * SECOND_US


def check(world: World) -> None:
    for entry in world.entries.values():
        stream = entry.settings.stream
        taken = [(key, value) for _, key, value in world.truth.rows.get(stream, [])]
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
