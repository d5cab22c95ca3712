"""No loss, no duplicate, no stable tuple undone: what clients are handed, tuple by tuple.

Stable tuples come with consecutive ids, each once, and equal what the replicas agree on. A client
that begins again gets them from the place on that its application has kept.
Tentative tuples never go back in time, or a client would see the same stretch twice. And they say
what they lack: streams that reach the client's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.frame import Why
from holdfast.simulation.checkers import Violation, delivery
from holdfast.simulation.executor import Computation, Row

if TYPE_CHECKING:
    from holdfast.simulation.client_process import ClientProcess
    from holdfast.simulation.world import World


class ClientChecks:
    """Checks on every delivery."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tentative_until: dict[str, int] = {}
        self._inputs = {
            stream: operator.inputs
            for fragment in world.spec.fragments
            for stream, operator in fragment.plan.outputs
        }

    def also(self, plan: Computation) -> None:
        """Other shards than at first compute some streams, or what is merged into one."""
        for stream, operator in plan.outputs:
            self._inputs[stream] = (*self._inputs.get(stream, ()), *operator.inputs)

    def begins_again(self, client: ClientProcess) -> None:
        """What it was told tentatively is taken back: it does not remember it."""
        self._tentative_until.pop(client.address, None)

    def stable(self, client: ClientProcess, first_id: int, rows: list[Row]) -> None:
        if client.settings.input.lossy:
            delivery.came(client, rows)
            return
        if first_id != client.next_id:
            raise Violation(
                "no loss, no duplicate",
                f"{client.address} has {client.next_id} stable tuples and gets id {first_id}",
            )
        if not self._world.truth.void:
            self._world.truth.compare(client.driver.stream, first_id, tuple(rows), client.address)
        left = [row for row in client.tentative if rows and row[0] <= rows[-1][0]]
        if left:
            raise Violation(
                "no stable tuple undone", f"{client.address} keeps {left} beside stable tuples"
            )

    def tentative(self, client: ClientProcess, rows: list[Row], why: Why | None) -> None:
        if not rows:
            return
        reaching = self._reaching(client.driver.stream)
        missing = {one.stream for one in why.missing} if why is not None else set()
        if not missing or not missing <= reaching:
            raise Violation(
                "tentative tuples say why",
                f"{client.address} gets {rows[-1]} of {client.driver.stream} as lacking {why}; "
                f"{sorted(reaching)} reach it",
            )
        until = self._tentative_until.get(client.address, -1)
        newest = client.newest
        if rows[0][0] <= until or (newest is not None and rows[0][0] <= newest[0]):
            raise Violation(
                "no duplicate",
                f"{client.address} gets {rows[0]} again: tentative to {until}, stable to {newest}",
            )
        self._tentative_until[client.address] = rows[-1][0]

    def _reaching(self, stream: str) -> set[str]:
        """The streams whose tuples can shape one."""
        found: set[str] = set()
        left = list(self._inputs.get(stream, ()))
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += self._inputs.get(name, ())
        return found
