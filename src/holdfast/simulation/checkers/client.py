"""No loss, no duplicate, no stable tuple undone: what clients are handed, tuple by tuple.

Stable tuples come with consecutive ids, each once, and equal what the replicas agree on.
Tentative tuples never go back in time, or a client would see the same stretch twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.simulation.checkers import Violation
from holdfast.simulation.executor import Row

if TYPE_CHECKING:
    from holdfast.simulation.client_process import ClientProcess
    from holdfast.simulation.world import World


class ClientChecks:
    """Checks on every delivery."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tentative_until: dict[str, int] = {}

    def stable(self, client: ClientProcess, first_id: int, rows: list[Row]) -> None:
        if first_id != len(client.stable):
            raise Violation(
                "no loss, no duplicate",
                f"{client.address} has {len(client.stable)} stable tuples and gets id {first_id}",
            )
        self._world.truth.compare(client.driver.stream, first_id, tuple(rows), client.address)
        left = [row for row in client.tentative if rows and row[0] <= rows[-1][0]]
        if left:
            raise Violation(
                "no stable tuple undone", f"{client.address} keeps {left} beside stable tuples"
            )

    def tentative(self, client: ClientProcess, rows: list[Row]) -> None:
        if not rows:
            return
        until = self._tentative_until.get(client.address, -1)
        if rows[0][0] <= until or (client.stable and rows[0][0] <= client.stable[-1][0]):
            raise Violation(
                "no duplicate",
                f"{client.address} gets {rows[0]} again: tentative to {until}, stable to "
                f"{client.stable[-1:]}",
            )
        self._tentative_until[client.address] = rows[-1][0]
