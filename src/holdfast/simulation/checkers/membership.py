"""Membership: who is gone holds nobody up, is told so and ends; and nobody forgets it.

- What was kept for one who is gone goes only when it is on disk that it is.
- In the end everybody obeys the newest membership, keeps nothing for those who are gone and reads
  nothing from them, and they have ended; for those who were added it keeps what they read, and it
  asks them for what they provide. Of feeds that were collected it has those that it revived. New
  shards have taken over, and the old ones are gone; copies that were to move have moved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.core.client import Client
from holdfast.core.effects import TrimLog
from holdfast.core.entry import EntryPoint
from holdfast.core.serving import ServedStream
from holdfast.simulation.authority import known_to
from holdfast.simulation.checkers import Stall, Violation

if TYPE_CHECKING:
    from holdfast.simulation.process import Process
    from holdfast.simulation.replica_process import ReplicaProcess
    from holdfast.simulation.world import World


def trims(process: Process, order: TrimLog) -> None:
    """Nobody trims what one who is gone has not acknowledged before that is on disk."""
    world = process.world
    if process.address in world.copies or world.joins.counts["joined"]:
        return  # what another one has trimmed is trimmed by who goes on from its checkpoint
    kept = process.disk.consumers
    for name in world.authority.gone:
        if kept is not None and kept.membership.gone_since(name) is not None:
            continue
        done_with = world.joins.acknowledged(name, order.stream)
        if done_with is not None and order.below_id > done_with:
            raise Violation(
                "membership",
                f"{process.address} trims {order.stream} below {order.below_id}, which {name} "
                f"needs from {done_with} on, and nothing says on disk that it is gone",
            )


def check(world: World) -> None:
    """At the end, when all has been well for a while."""
    membership, gone = world.authority.membership, world.authority.gone
    if world.authority.rescaling.is_under_way:
        raise Stall("membership", "new shards have not taken over from the old ones")
    if world.authority.moving.is_under_way:
        raise Stall("membership", "a copy that is about to go was not relieved")
    for name, process in gone.items():
        if process.up:
            raise Stall("membership", f"{name} is gone and goes on: nobody has told it")
    for address, process in world.processes.items():
        if address in gone or not process.up:
            continue
        if known_to(process).epoch < membership.epoch:
            raise Stall(
                "membership",
                f"{address} knows of epoch {known_to(process).epoch}, not of {membership.epoch}",
            )
        for served in _served(process):
            for name in served.acknowledgements.needs():
                if name in gone:
                    raise Violation("membership", f"{address} keeps {served.stream} for {name}")
        _check_spared(process)
        asked = () if process.consumer is None else process.consumer.detectors
        for name in asked:
            if name in gone:
                raise Violation("membership", f"{address} still asks {name}")
        for name, _ in (*membership.added, *membership.taking):
            if name in world.replicas and name != address:
                _check_known(world.replicas[name], process)


def _check_spared(process: Process) -> None:
    """Whoever reads keeps no feed that was collected, unless it has revived it."""
    consumer = process.consumer
    upstreams = {} if consumer is None else consumer.upstreams
    for stream, upstream in upstreams.items():
        collected = known_to(process).collected_from(process.address, stream)
        feeds = {feed.peer for feed in upstream.feeds()} - {*upstream.revival.revived}
        if feeds & collected.keys():
            raise Violation(
                "membership", f"{upstream.name} has feeds that were collected: {sorted(feeds)}"
            )


def _check_known(added: ReplicaProcess, process: Process) -> None:
    """Whoever has to do with one that was added knows it."""
    reads = {one.stream for one in added.settings.inputs}
    for served in _served(process):
        if served.stream in reads and not served.acknowledgements.knows(added.address):
            raise Violation(
                "membership", f"{process.address} keeps no {served.stream} for {added.address}"
            )
    consumer = process.consumer
    if consumer is not None and added.address not in consumer.detectors:
        for one in added.settings.outputs:
            if one.stream in consumer.upstreams:
                raise Violation("membership", f"{process.address} does not ask {added.address}")


def _served(process: Process) -> Iterable[ServedStream]:
    driver = process.driver
    if isinstance(driver, Client):
        return ()
    return (driver.served,) if isinstance(driver, EntryPoint) else driver.served.values()
