"""Joining: what was promised to one that has lost everything is kept.

- Who asks a partner for its state has a hold, on disk, at every producer that could be asked, and
  has been told of it if it is new.
- What a provider keeps for a consumer is what this life of it has acknowledged, and nothing that
  an earlier life had.
- A producer that has said that it holds never refuses what is asked for: one attempt is enough.
- It joins soon, if producers and a partner that has the state stand: also if one of the producers
  has lost everything itself, and cannot go on, and later, but not never, if what partners say takes
  long to come.
- In the end it is STABLE again (progress.py), with the ids and bits of the others (convergence.py).

Where every replica of a fragment has lost its disk nobody has the state: the run is void.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.core.client import Client
from holdfast.core.entry import EntryPoint
from holdfast.core.events import MessageArrived
from holdfast.core.messages import HeartbeatRequest, JoinRequest
from holdfast.core.serving import ServedStream
from holdfast.core.settings import SECOND_US
from holdfast.simulation.authority import known_to
from holdfast.simulation.checkers import Violation

if TYPE_CHECKING:
    from holdfast.simulation.process import Process
    from holdfast.simulation.replica_process import ReplicaProcess
    from holdfast.simulation.world import World


# How much later one may join whose partners are far away.
FAR_US = 10 * SECOND_US


class JoinChecks:
    """The consumers of a world, and their lives."""

    def __init__(self, world: World) -> None:
        self._world = world
        # How far each life of each consumer has acknowledged each stream.
        self._acknowledged: dict[tuple[str, int, str], int] = {}
        self._could_since: dict[str, int] = {}
        self._epoch = 0
        # The newest membership that each process was seen to obey, and since when.
        self._obeys: dict[str, tuple[int, int]] = {}
        self.counts: Counter[str] = Counter()
        # For whom somebody has kept nothing for a while.
        self.lapsed: set[str] = set()

    def acknowledges(self, consumer: str, request: HeartbeatRequest) -> None:
        for stream, first_needed in request.acks:
            key = (consumer, request.incarnation, stream)
            if first_needed > self._acknowledged.get(key, 0):
                self._acknowledged[key] = first_needed

    def acknowledged(self, consumer: str, stream: str) -> int | None:
        """How far any life of a consumer has acknowledged a stream; None if it reads it not."""
        found = [
            first_needed
            for (name, _, what), first_needed in self._acknowledged.items()
            if (name, what) == (consumer, stream)
        ]
        return max(found, default=None)

    def asked(self, process: ReplicaProcess, request: JoinRequest) -> None:
        """A joiner asks a partner for its state: producers must hold by now."""
        world, machine = self._world, process.driver.joining
        assert machine is not None, "only who joins asks"
        self.counts["asked"] += 1
        timing = world.spec.timing
        patience_us = timing.delay_us + 3 * timing.heartbeat_interval_us
        early = machine.is_patient(world.clock.now + process.ahead_us)
        for name in {name for one in process.driver.settings.inputs for name in one.producers}:
            producer = world.processes[name]
            life = _life_on_disk(producer, process.address)
            if producer.disk_lost or life >= request.incarnation:
                continue
            since = world.link_stands_since(name, process.address)
            told_at = self._told_at(producer, process.address)
            could = since is not None and producer.running and not producer.disk.full
            could = could and told_at is not None
            undisturbed_since = max(
                since or 0, told_at or 0, producer.disturbed_at, process.disturbed_at
            )
            if early or (could and world.clock.now - undisturbed_since > patience_us):
                raise Violation(
                    "joining",
                    f"{process.address} asks for a state before {name} holds what follows it",
                )

    def _told_at(self, producer: Process, joiner: str) -> int | None:
        """When a producer was told of one that is new, if it was; 0 of others."""
        membership = self._world.authority.membership
        if all(one != joiner for one, _ in (*membership.added, *membership.taking)):
            return 0
        known = known_to(producer)
        if all(one != joiner for one, _ in (*known.added, *known.taking)):
            return None
        epoch, since = self._obeys.get(producer.address, (0, 0))
        return since if epoch == known.epoch else self._world.clock.now

    def joined(self, process: ReplicaProcess) -> None:
        """Its disk has all it needs again."""
        process.disk_lost = False
        self.counts["joined"] += 1

    def refused(self, producer: str, consumer: str, reason: str) -> None:
        """A consumer cannot have what it needs, and has not lost its disk."""
        process = self._world.processes[consumer]
        reader = process.consumer
        life = 0 if reader is None else reader.incarnation
        if consumer in self.lapsed:
            return  # it was away for longer than anything is kept, and joins anew
        if consumer in self._world.copies and self._world.copies[consumer].copy.lossy:
            return  # nothing was kept for it while it slept, and it goes on anywhere
        if _life_on_disk(self._world.processes[producer], consumer) == life:
            raise Violation("no loss", f"{producer} cannot serve {consumer}: {reason}")

    def is_known_to_others(self, address: str) -> bool:
        """Whether another replica of the fragment has something on disk to go on from."""
        replicas = self._world.replicas
        membership = self._world.authority.membership
        partners = replicas[address].settings.among(membership).partners
        return any(replicas[one].disk.record is not None for one in partners)

    def forgot(self, address: str) -> None:
        """A disk is lost; is there another replica that knows?"""
        world = self._world
        if address not in world.replicas or address in world.copies:
            return
        partners = world.replicas[address].settings.among(world.authority.membership).partners
        if partners and not self.is_known_to_others(address):
            world.give_up(f"nobody has the state of {address} any more")

    def deliver(self, process: Process, consumer: str, request: HeartbeatRequest) -> None:
        """A provider takes a heartbeat.

        One of a life that is over changes nothing, nor does one of an epoch that is not obeyed.
        """
        overtaken = request.incarnation < self._lives_at(process).get(consumer, 0)
        behind = request.epoch > known_to(process).epoch
        before = self._kept_at(process) if overtaken or behind else {}
        self._world.bounds.heard(process.address, consumer, request)
        process.receive(MessageArrived(consumer, request))
        if behind and process.running:
            self.counts["behind"] += 1
            if _has_gone(before, self._kept_at(process)):
                raise Violation(
                    "membership",
                    f"{process.address} lets {consumer} of epoch {request.epoch} acknowledge, and "
                    f"obeys an older one: {before} before, {self._kept_at(process)} now",
                )
        if overtaken and process.running:
            self.counts["overtaken"] += 1
            if self._kept_at(process) != before:
                raise Violation(
                    "joining",
                    f"{process.address} lets an earlier life of {consumer} acknowledge: "
                    f"{before} before, {self._kept_at(process)} now",
                )

    def sample(self) -> None:
        for process in self._world.processes.values():
            if process.running:
                epoch = known_to(process).epoch
                if epoch != self._obeys.get(process.address, (0, 0))[0]:
                    self._obeys[process.address] = (epoch, self._world.clock.now)
                self._check_kept_for(process)
                for served in self._streams_at(process):
                    self.lapsed |= served.acknowledgements.lapsed
        for one in self._world.replicas.values():
            self._check_joins(one)

    def _check_joins(self, process: ReplicaProcess) -> None:
        """Who can join does so soon; who is alone cannot."""
        world, address = self._world, process.address
        machine = process.driver.joining if process.running else None
        if machine is None and not self._waits_in_vain(process):
            self._could_since[address] = world.clock.now
            return
        if not process.settings.begins_empty:
            return  # it takes over from several; progress.py wants it to have done so
        why = "it waits for its input" if machine is None else f"{machine.why}\n{machine.story()}"
        if self._epoch != world.authority.membership.epoch:
            self._epoch = world.authority.membership.epoch
            self._could_since = dict.fromkeys(self._could_since, world.clock.now)
        settings = process.settings.among(world.authority.membership)
        if not settings.partners:
            world.give_up(f"{address} is alone: {why}")
            return
        needed = [
            self._stands_since(name, address) for one in settings.inputs for name in one.producers
        ]
        lent = [
            self._stands_since(name, address, late=True)
            for name in settings.partners
            if world.replicas[name].replica is not None and world.replicas[name].disk.record
        ]
        helpers = [since for since in lent if since is not None]
        everybody = [since for since in needed if since is not None]
        if len(everybody) < len(needed) or not helpers or process.slow or process.disk.full:
            self._could_since[address] = world.clock.now
            return
        since = max(*everybody, min(helpers), process.disturbed_at)
        since = max(since, self._could_since.get(address, 0))
        timing = world.spec.timing
        turn_us = (timing.misses_until_down + 3) * timing.heartbeat_interval_us
        allowed = timing.delay_us + (1 + len(settings.partners)) * turn_us + 3 * SECOND_US
        far = any(world.link_stands_since(one, address) is None for one in settings.partners)
        allowed += FAR_US * far
        if world.clock.now - since > allowed:
            raise Violation(
                "joining", f"{address} could have joined since {since / 1e6:.3f} s: {why}"
            )

    def _waits_in_vain(self, process: ReplicaProcess) -> bool:
        """Whether it runs with nothing, and what it needs first is with none of its producers."""
        replica = process.replica if process.running and process.disk_lost else None
        if replica is None or process.address in self._world.copies or process.disk.record:
            return False
        if replica.appender.durable is not None or not process.settings.can_join:
            return False
        return any(
            self._begins_later(one.stream, one.producers, replica.copies[one.stream].next_id)
            for one in process.settings.inputs
            if not any(feed.received for feed in replica.consumer.upstreams[one.stream].feeds())
        )

    def _begins_later(self, stream: str, producers: tuple[str, ...], next_id: int) -> bool:
        """Whether a producer begins after an id, and the others do or have nothing yet."""
        here = [one for one in producers if one not in self._world.authority.gone]
        begins = []
        for process in (self._world.processes[name] for name in here):
            (served,) = [one for one in self._streams_at(process) if one.stream == stream]
            if not (process.disk_lost and served.next_id == served.boundary == 0):
                begins.append(served.first_id)
        return bool(begins) and min(begins) > next_id

    def _stands_since(self, name: str, reader: str, late: bool = False) -> int | None:
        """Since when a process runs that can be reached; None if it does not now."""
        process = self._world.processes[name]
        link = self._world.link_stands_since(name, reader, late)
        if link is None or not process.running or process.slow or process.disk.full:
            return None
        return max(link, process.disturbed_at)

    def _lives_at(self, process: Process) -> Mapping[str, int]:
        driver = process.driver
        return {} if isinstance(driver, Client) else driver.consumers.lives

    def _streams_at(self, process: Process) -> Iterable[ServedStream]:
        driver = process.driver
        if isinstance(driver, Client):
            return ()
        return (driver.served,) if isinstance(driver, EntryPoint) else driver.served.values()

    def _kept_at(self, process: Process) -> dict[str, dict[str, int]]:
        """From where on each stream is kept, for each consumer."""
        kept = {one.stream: one.acknowledgements for one in self._streams_at(process)}
        return {name: {"": one.trimmed_below, **one.needs()} for name, one in kept.items()}

    def _check_kept_for(self, process: Process) -> None:
        lives = self._lives_at(process)
        for served in self._streams_at(process):
            kept = served.acknowledgements
            for consumer, first_needed in kept.needs().items():
                key = (consumer, lives.get(consumer, 0), served.stream)
                if first_needed > max(kept.trimmed_below, self._acknowledged.get(key, 0)):
                    raise Violation(
                        "joining",
                        f"{process.address} keeps {served.stream} for {consumer} from "
                        f"{first_needed} on, but its life {key[1]} has acknowledged "
                        f"{self._acknowledged.get(key, 0)}",
                    )


def _has_gone(before: dict[str, dict[str, int]], now: dict[str, dict[str, int]]) -> bool:
    """Whether anything is kept for nobody any more, or not for one for whom it was."""
    return any(
        first > before[stream].get(name, first)
        for stream, kept in now.items()
        for name, first in kept.items()
    )


def _life_on_disk(process: Process, consumer: str) -> int:
    kept = process.disk.consumers
    return 0 if kept is None else dict(kept.lives).get(consumer, 0)
