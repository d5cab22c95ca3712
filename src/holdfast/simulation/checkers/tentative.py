"""Fewest tentative tuples: none at all when no failure lasts as long as αX.

Checked in runs whose schedule is gentle: single short cuts, far apart. A passive fragment takes
a cut between its copies for a failure, and starting an engine may take longer than αX. Nor where
a source brings its own time: nobody knows how late that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.settings import Protection
from holdfast.simulation.checkers import Violation

if TYPE_CHECKING:
    from holdfast.simulation.world import World


def check(world: World) -> None:
    passive = any(copy.pair.protection is Protection.PASSIVE for copy in world.copies.values())
    # The time of a source that brings its own is behind by what it may still send.
    behind = any(entry.settings.own_time for entry in world.entries.values())
    if not world.schedule.gentle or passive or behind:
        return
    taken = world.coverage.visits["SOutput", "STABLE", "TENTATIVE_RESULT"]
    if taken:
        raise Violation(
            "fewest tentative tuples",
            f"outputs became tentative {taken} times, though no failure lasted αX = "
            f"{world.spec.timing.least_alpha_x_us / 1e6:.3f} s",
        )
    for client in world.clients.values():
        if client.first_tentative_at is not None:
            raise Violation(
                "fewest tentative tuples",
                f"{client.address} got {client.tentative_count} tentative tuples, the first at "
                f"{client.first_tentative_at / 1e6:.3f} s, though no failure lasted αX = "
                f"{world.spec.timing.least_alpha_x_us / 1e6:.3f} s",
            )
