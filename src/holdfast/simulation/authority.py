"""Who decides who takes part in a simulated world: clients are retired, replicas come and go."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.core.consistency import NodeState
from holdfast.core.events import MembershipTold
from holdfast.core.records import Membership
from holdfast.core.settings import SECOND_US
from holdfast.simulation import collecting
from holdfast.simulation.checkpointing import CheckpointingProcess
from holdfast.simulation.client_process import ClientProcess
from holdfast.simulation.clock import ServerClock
from holdfast.simulation.entry_process import EntryProcess
from holdfast.simulation.moving import Moving
from holdfast.simulation.networks import NetworkSpec
from holdfast.simulation.process import Process
from holdfast.simulation.replica_process import ReplicaProcess
from holdfast.simulation.rescaling import Rescaling

if TYPE_CHECKING:
    from holdfast.simulation.world import World


class Authority:
    """Decides, numbers what it has decided, and tells somebody until one has it on disk.

    The others hear of it from each other, and so do those who are gone. In a network that falls
    into parts, somebody of each part is told.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.membership = Membership()
        # They run until they are told, and start again if their server does.
        self.gone: dict[str, Process] = {}
        self.rescaling = Rescaling(world, self)
        self.moving = Moving(world, self)

    def remove(self, server: str) -> bool:
        """Whoever of a server can be done without takes part no longer; whether there is one."""
        world = self._world
        for process in (*world.clients.values(), *world.replicas.values()):
            if world.server_of[process.address] == server and self._can_go(process):
                self._remove(process)
                return True
        return False

    def add(self, server: str) -> bool:
        """A replica that runs at a server gets one more partner; whether one does."""
        world = self._world
        for like in world.replicas.values():
            if world.server_of[like.address] == server and self._can_lend(like):
                self._add(like)
                return True
        return False

    def collect(self) -> bool:
        """The least useful feeds and replicas go; whether any do."""
        found = collecting.running(self._world)
        random = self._world.random
        k_min, share = random.choice([1, 1, 2]), random.choice([0.0, 0.4, 0.7])
        kept = collecting.collect(found, k_min, share)
        gone = [one for one in kept.discarded if isinstance(one, str)]
        leaving = [self._world.replicas[name] for name in gone]
        left = {name: len(names) for name, names in found.replicas.items()}
        for process in leaving:
            # A replica goes only if another one has all that somebody may ask it for.
            fragment = next(name for name in left if process.address in found.replicas[name])
            if left[fragment] > k_min and self._can_go(process):
                left[fragment] -= 1
                self._remove(process)
        taking_part = self._world.processes.keys() - self.gone.keys()
        feeds = [
            (feed.consumer, feed.stream, feed.producer)
            for feed in found.feeds
            if feed not in kept.feeds and {feed.consumer, feed.producer} <= taking_part
        ]
        # Feeds of those that could not go stay as they were.
        stay = {name for name in gone if name not in self.gone}
        feeds = [one for one in feeds if not stay & {one[0], one[2]}]
        used = [(feed.consumer, feed.stream, feed.producer) for feed in kept.feeds]
        self.membership = self.membership.collecting(feeds, used)
        self._world.changes += 1
        self._tell(self.membership)
        return bool(feeds)

    def _can_lend(self, like: ReplicaProcess) -> bool:
        """Whether somebody has the state that the new one will need."""
        partners = (like.address, *like.settings.partners)
        found = [self._world.replicas[one] for one in partners if one in self._world.replicas]
        return like.address not in self._world.copies and all(
            one.disk.record is not None for one in found
        )

    def _add(self, like: ReplicaProcess) -> None:
        world = self._world
        number = self.membership.epoch + 1
        name, server = f"{like.address}+{number}", f"n{number}"
        world.server_of[name] = server
        world.clocks[server] = ServerClock(0, 0)
        partners = (like.address, *(one for one in like.settings.partners if one not in self.gone))
        settings = replace(like.settings, address=name, partners=partners)
        process = CheckpointingProcess(world, settings, like.plan, world.spec.job_us)
        # It finds nothing, as one does that has lost everything.
        process.disk_lost = True
        world.replicas[name] = world.processes[name] = process
        world.changes += 1
        self.membership = self.membership.with_another(name, like.address)
        self._tell(self.membership)
        process.start()

    def _can_go(self, process: Process) -> bool:
        world = self._world
        if isinstance(process, ClientProcess):
            return len(world.clients) > 1
        if process.address in world.copies or not isinstance(process, ReplicaProcess):
            return False
        partners = [world.replicas.get(name) for name in process.settings.partners]
        return any(one is not None and self._stands_in(one, process) for one in partners)

    @staticmethod
    def _stands_in(other: ReplicaProcess, process: ReplicaProcess) -> bool:
        """Whether another replica has all that somebody may ask the first one for.

        One that never joined has: it trims what is acknowledged, and nothing else.
        """
        replica = other.replica
        if replica is None or replica.state is NodeState.RECOVERING or not other.running:
            return False
        there = process.driver.served if process.up else {}
        return other.driver.incarnation == 0 or all(
            name in there and stream.first_id <= there[name].first_id
            for name, stream in other.driver.served.items()
        )

    def _remove(self, process: Process) -> None:
        self.dismiss({process.address: process})

    def dismiss(self, leaving: dict[str, Process], after: Membership | None = None) -> None:
        """Some take part no longer; ``after`` says who does then, if others are new."""
        for name, process in leaving.items():
            self.gone[name] = process
            self._world.replicas.pop(name, None)
            self._world.clients.pop(name, None)
            self._world.copies.pop(name, None)
        self.decide(after or self.membership.without(*leaving))

    def decide(self, membership: Membership) -> None:
        """This is who takes part from now on."""
        self.membership = membership
        self._world.changes += 1
        self._tell(membership)

    @staticmethod
    def known_to(process: Process) -> Membership:
        return known_to(process)

    def _tell(self, membership: Membership) -> None:
        if membership is not self.membership:
            return
        world = self._world
        untold = False
        for names in _connected(world.spec):
            joined = (*membership.added, *membership.taking)
            names |= {name for name, like in joined if like in names}
            others = [world.processes[name] for name in sorted(names - self.gone.keys())]
            with_disks = [one for one in others if not isinstance(one, ClientProcess)]
            if any(known_to(one).epoch >= membership.epoch for one in with_disks):
                continue
            untold = True
            reached = [one for one in with_disks if one.running]
            if reached:
                world.random.choice(reached).receive(MembershipTold(membership))
        if untold:
            world.clock.after(SECOND_US, self._tell, membership)


def _connected(spec: NetworkSpec) -> list[set[str]]:
    """The processes of each part of a network between which streams flow."""
    reads = {name: one.inputs for name, one in spec.replica_settings().items()}
    reads |= {one.address: (one.input,) for one in spec.clients}
    parts: list[set[str]] = []
    for reader, inputs in reads.items():
        part = {reader, *(name for one in inputs for name in one.producers)}
        apart = [one for one in parts if not one & part]
        part.update(*(one for one in parts if one & part))
        parts = [*apart, part]
    return parts


def known_to(process: Process) -> Membership:
    """What a process obeys; while it is down, what its disk has."""
    if process.up:
        driver = process.driver
        if isinstance(process, ClientProcess):
            return process.driver.membership
        assert isinstance(process, EntryProcess | ReplicaProcess)
        return driver.consumers.membership  # type: ignore[union-attr]
    kept = process.disk.consumers
    return Membership() if kept is None else kept.membership
