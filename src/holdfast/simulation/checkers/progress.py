"""Progress: once all is well, everyone is stable again, up to date, and follows a stable source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.consistency import NodeState
from holdfast.core.consumer import Consumer
from holdfast.core.upstream import Following
from holdfast.simulation.checkers import Stall

if TYPE_CHECKING:
    from holdfast.simulation.world import World


def check(world: World) -> None:
    now = world.clock.now
    timing = world.spec.timing
    for address, process in world.replicas.items():
        replica = process.replica
        if replica is None and address in world.copies:
            continue  # it sleeps; standby.py says whether it may
        if replica is None:
            machine = process.driver.joining
            story = "" if machine is None else f"\n{machine.why}\n{machine.story()}"
            raise Stall("progress", f"{address} does not run at the end{story}")
        if replica.state is not NodeState.STABLE:
            raise Stall(
                "progress",
                f"{address} is {replica.state.name} at the end\n"
                f"{replica.manager.story()}\n{replica.sunion.story()}",
            )
        behind = now - replica.versions.stable_position
        if behind > timing.delay_us * (1 + len(world.spec.fragments)):
            raise Stall("progress", f"{address} is {behind / 1e6:.3f} s behind at the end")
        _check_sources(address, replica.consumer)
    for address, client in world.clients.items():
        behind = now - client.boundary
        if behind > timing.delay_us * (1 + len(world.spec.fragments)):
            raise Stall(
                "progress",
                f"{address} is {behind / 1e6:.3f} s behind at the end\n"
                f"{client.driver.consumer.upstreams[client.driver.stream].story()}",
            )
        _check_sources(address, client.driver.consumer)


def _check_sources(address: str, consumer: Consumer) -> None:
    for stream, one in consumer.upstreams.items():
        if one.state is not Following.STABLE:
            raise Stall(
                "progress", f"{address} takes {stream} from {one.state.value}\n{one.story()}"
            )
