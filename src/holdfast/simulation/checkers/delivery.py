"""At most once: whatever a client of such a stream gets was there, and comes once.

That at least once loses nothing, and exactly once neither loses nor doubles, needs no checker of
its own: both are compared with the oracle, tuple by tuple (``client``, ``consistency``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.simulation.checkers import Violation
from holdfast.simulation.executor import Gather, Row

if TYPE_CHECKING:
    from holdfast.simulation.client_process import ClientProcess
    from holdfast.simulation.world import World


def came(client: ClientProcess, rows: Sequence[Row]) -> None:
    """Results of a time that is over do not come again, nor any of them twice."""
    for row in rows:
        if row in client.seen or (client.stable and row[0] < client.stable[-1][0]):
            raise Violation("at most once", f"{client.address} gets {row} again, or too late")
        client.seen.add(row)


def check(world: World, client: ClientProcess, expected: list[Row]) -> None:
    """Nothing but what the oracle has; of its windows, parts."""
    gathers = any(
        isinstance(operator, Gather)
        for one in world.spec.fragments
        for stream, operator in (one.whole or one.plan).outputs
        if stream == client.stream
    )
    if not gathers:
        unknown = set(client.stable) - set(expected)
        if unknown:
            raise Violation("at most once", f"{client.address} has {sorted(unknown)[:3]}")
        return
    whole = {row[:2]: row[2] for row in expected}
    windows = [row[:2] for row in client.stable]
    if len(windows) != len(set(windows)):
        raise Violation("at most once", f"{client.address} has a window twice")
    for *window, value, _ in client.stable:
        # One digit for each tuple.
        if value & ~whole.get(tuple(window), 0):
            raise Violation("at most once", f"{client.address} has tuples twice in {window}")
