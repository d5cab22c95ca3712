"""Another number of shards while a simulated network runs, as ``holdfast rescale`` does it.

A new generation of shards, and of what merges them, starts beside the one that runs and takes over
from it (``core.succession``). When those who merge are stable, and everybody has heard of them, the
old generation goes. Until then it may be called off: the new one goes instead. New processes run on
the servers that the first ones ran on, in turn, as ``deployment_shards`` has it, and break with
them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.core.consistency import NodeState
from holdfast.core.events import MembershipTold
from holdfast.core.heirs import Heirs, parts_of, places_of
from holdfast.core.settings import SECOND_US, Delivery, Input, Output, ReplicaSettings
from holdfast.simulation.checkpointing import CheckpointingProcess
from holdfast.simulation.client_process import ClientProcess
from holdfast.simulation.executor import Computation, Merge
from holdfast.simulation.process import Process
from holdfast.simulation.protected_process import ProtectedProcess

if TYPE_CHECKING:
    from holdfast.simulation.authority import Authority
    from holdfast.simulation.replica_process import ReplicaProcess
    from holdfast.simulation.world import World

# The replicas of each shard, or of each part of one, the first one first.
Generation = list[tuple[str, ...]]


class Rescaling:
    """The generations of the shards of one fragment."""

    def __init__(self, world: World, authority: Authority) -> None:
        self._world = world
        self._authority = authority
        self._number = 1
        self._shards: Generation = []
        self._heirs = Heirs.NEXT
        self._merging: tuple[str, ...] = ()
        # The generation that takes over, while one does.
        self._next: tuple[int, Generation, tuple[str, ...]] | None = None
        # How many shards there are; those that are spread are more, counted in parts.
        self._count = 0
        for fragment in world.spec.fragments:
            if fragment.whole is not None and not self._merging:
                self._merging = fragment.addresses
                own = f"{fragment.name}."
                shards = [one for one in world.spec.fragments if one.name.startswith(own)]
                self._shards = [one.addresses for one in shards]
                self._heirs = shards[0].heirs
                self._count = len(shards) // shards[0].parts
        # A replica on each server that they have, those first that some shard's first one is on.
        ranks = zip(*self._shards, strict=True)
        self._homes: dict[str, str] = {}
        for name in (name for rank in ranks for name in rank):
            self._homes.setdefault(world.server_of[name], name)

    @property
    def is_under_way(self) -> bool:
        """Whether a new generation has still to take over."""
        return self._next is not None

    def begin(self, wanted: int | None = None) -> bool:
        """Have another number of shards, any if it is not said which; whether it can be."""
        world = self._world
        if self._next is not None or not self._merging or not self._has_begun():
            return False
        self._number += 1
        if wanted is None:
            # Each copy of a shard is at another one, unless it is the only one.
            least = len(self._shards[0]) if self._shards[0][0] in world.copies else 1
            least = 1 if least == 2 else least
            choices = [one for one in range(least, 6) if one != self._count]
            wanted = world.random.choice(choices)
        merging = tuple(f"{name.partition('+')[0]}+{self._number}" for name in self._merging)
        shards = self._new_shards(wanted, merging)
        self._new_merging(shards, merging)
        self._next = (wanted, shards, merging)
        taking = [
            (new, name)
            for number, names in enumerate(shards, start=1)
            for new in names
            for olds in self._taken_from(number, len(shards))
            for name in olds
        ]
        taking += [(new, name) for new in merging for name in self._merging]
        membership = self._authority.membership.with_shards(
            taking, zip(merging, self._merging, strict=True)
        )
        self._authority.decide(membership)
        for name in (*(one for names in shards for one in names), *merging):
            world.processes[name].start()
        world.clock.after(SECOND_US, self._look, self._number)
        return True

    def call_off(self) -> bool:
        """Let the new generation go again, if one takes over just now; whether that is so."""
        if self._next is None or not self._has_begun():
            return False
        _, shards, merging = self._next
        self._next = None
        self._dismiss(shards, merging)
        return True

    def _has_begun(self) -> bool:
        """Whether those who run have something to hand over."""
        replicas = self._world.replicas
        found = [*(name for names in self._shards for name in names), *self._merging]
        return all(name in replicas and _holds(replicas[name]) for name in found)

    def _new_shards(self, wanted: int, merging: tuple[str, ...]) -> Generation:
        world, found = self._world, []
        parts = parts_of(self._heirs, wanted)
        pieces = wanted * parts
        for number in range(1, pieces + 1):
            at = (number - 1) % len(self._shards)
            like = world.replicas[self._shards[at][0]]
            base = self._shards[at][0].partition(".")[0]
            own = len(self._shards[at])
            near = self._near(number, parts, wanted, own)
            names = tuple(f"{base}.g{self._number}.{number}{letter}" for letter in "abcd"[:own])
            streams = [self._renamed(stream, number) for stream, _ in like.plan.outputs]
            operators = [operator for _, operator in like.plan.outputs]
            both = tuple(zip(streams, operators, strict=True))
            plan = Computation(both, (number, pieces), like.plan.primary)
            outputs = tuple(
                Output(stream, one.reached_by, merging)
                for stream, one in zip(streams, like.settings.outputs, strict=True)
            )
            taken_from = self._taken_from(number, pieces)
            settings = _begun_by(replace(like.settings, outputs=outputs), taken_from)
            self._start(names, settings, plan, near, world.copies.get(self._shards[at][0]))
            found.append(names)
            world.producers.update(dict.fromkeys(streams, names))
            world.operators.update(plan.outputs)
            world.truth.late.update({stream: {} for stream in streams})
        return found

    def _near(self, number: int, parts: int, wanted: int, copies: int) -> tuple[str, ...]:
        """Replicas beside which those of a new shard are, or of a part of one."""
        homes = list(self._homes)
        share = wanted > 1 and self._shards[0][0] in self._world.copies
        seats = wanted if share else max(wanted, len(homes))
        servers = [homes[at % len(homes)] for at in range(seats)]
        shard, part = divmod(number - 1, parts)
        ring = places_of(shard + 1, part + 1, seats, copies, servers)
        return tuple(self._homes[servers[at - 1]] for at in ring)

    def _taken_from(self, number: int, wanted: int) -> tuple[tuple[str, ...], ...]:
        """The old shards that have slots of a new one."""
        from holdfast.slots import Routing, slot_range  # loads Arrow: only where there are shards

        primary = self._world.replicas[self._shards[0][0]].plan.primary
        routing = Routing.PRIMARY if primary else Routing.KEY
        first, end = slot_range(number, wanted, routing)
        before = len(self._shards)
        ranges = (slot_range(one, before, routing) for one in range(1, before + 1))
        near = tuple(
            names
            for names, (begin, stop) in zip(self._shards, ranges, strict=True)
            if max(first, begin) < min(end, stop)
        )
        return near or tuple(self._shards)

    def _renamed(self, stream: str, number: int) -> str:
        """f00.0.2, or f00.0.g3.2, becomes f00.0.g4.1."""
        fragment, output, *_ = stream.split(".")
        return f"{fragment}.{output}.g{self._number}.{number}"

    def _new_merging(self, shards: Generation, merging: tuple[str, ...]) -> None:
        world = self._world
        like = world.replicas[self._merging[0]]
        merged: dict[str, tuple[str, ...]] = {}
        inputs = []
        standing = like.settings.inputs[0].standing
        for stream, _ in like.plan.outputs:
            numbers = range(1, len(shards) + 1)
            merged[stream] = tuple(self._renamed(stream, number) for number in numbers)
            inputs += [
                Input(name, names, standing, lossy=_is_lossy(like.settings))
                for name, names in zip(merged[stream], shards, strict=True)
            ]
        plan = Computation(tuple((stream, Merge(parts)) for stream, parts in merged.items()))
        outputs = tuple(
            replace(one, reached_by=frozenset(merged[one.stream])) for one in like.settings.outputs
        )
        settings = replace(like.settings, inputs=tuple(inputs), outputs=outputs)
        self._start(merging, _begun_by(settings, (self._merging,)), plan, self._merging)
        for stream in merged:
            world.producers[stream] = (*world.producers[stream], *merging)

    def _start(
        self,
        names: tuple[str, ...],
        settings: ReplicaSettings,
        plan: Computation,
        near: tuple[str, ...],
        like: ProtectedProcess | None = None,
    ) -> None:
        """Make the replicas of a fragment: the first takes over, the others join it.

        like  a copy of an old shard, if copies of it stand by.
        """
        world = self._world
        world.client_checks.also(plan)
        for index, name in enumerate(names):
            world.server_of[name] = world.server_of[near[index]]
            turned = names[index + 1 :] + names[:index]
            own = replace(settings, address=name, partners=() if like else turned)
            own = own if index == 0 else replace(own, predecessors=())
            if like is None:
                process = CheckpointingProcess(world, own, plan, world.spec.job_us)
            else:
                pair = replace(like.pair, copies=names)
                process = ProtectedProcess(world, own, pair, plan, *like.speeds)
                world.copies[name] = process
            process.disk_lost = not _is_lossy(own)
            process.suffers_as(world.processes[near[index]])
            world.replicas[name] = world.processes[name] = process

    def _look(self, number: int) -> None:
        """Let the old generation go once the new one, of this number, does all of its work."""
        world, authority = self._world, self._authority
        if self._next is None or number != self._number:
            return  # it was called off
        wanted, shards, merging = self._next
        epoch = authority.membership.epoch
        # A client may be away for days: it is not waited for.
        heard = all(
            authority.known_to(one).epoch >= epoch
            for name, one in world.processes.items()
            if name not in authority.gone and not isinstance(one, ClientProcess)
        )
        if not heard or not all(self._stands_in(name) for name in merging):
            world.clock.after(SECOND_US, self._look, number)
            return
        old = self._shards, self._merging
        self._count, self._shards, self._merging, self._next = wanted, shards, merging, None
        if shards[0][0] in world.copies:
            world.rings.goes_on(shards, wanted)
        world.rescaled += 1
        self._dismiss(*old)
        self.tell_clients()

    def _dismiss(self, shards: Generation, merging: tuple[str, ...]) -> None:
        names = [*(name for names in shards for name in names), *merging]
        leaving: dict[str, Process] = {name: self._world.replicas[name] for name in names}
        self._authority.dismiss(leaving)
        self._tell(leaving)

    def _tell(self, leaving: dict[str, Process]) -> None:
        """Those they read from leave with them: each has to find out by itself, as from a file,
        whenever it runs again."""
        for process in leaving.values():
            if process.running:
                process.receive(MembershipTold(self._authority.membership))
        self._world.clock.after(SECOND_US, self._tell, leaving)

    def tell_clients(self) -> None:
        """One that was away, or begins again, knows nobody who is left: it looks at the file."""
        world, authority = self._world, self._authority
        behind = [
            one
            for one in world.clients.values()
            if authority.known_to(one).epoch < authority.membership.epoch
        ]
        for one in behind:
            if one.running and set(one.consumer.detectors) <= set(authority.gone):
                one.receive(MembershipTold(authority.membership))
        if behind:
            world.clock.after(SECOND_US, self.tell_clients)

    def _stands_in(self, name: str) -> bool:
        """Whether one that merges new shards has all that somebody may ask the old ones for."""
        new: ReplicaProcess = self._world.replicas[name]
        replica = new.replica
        if replica is None or replica.state is NodeState.RECOVERING or not new.running:
            return False
        if _is_lossy(new.settings):
            return True  # nobody may ask for anything
        there = [self._world.replicas[one] for one in self._merging]
        kept = [one.driver.served for one in there if one.up]
        # One that has joined may have less than another one has.
        return bool(kept) and all(
            stream.first_id <= one[name].first_id
            for one in kept
            for name, stream in new.driver.served.items()
        )


def _is_lossy(settings: ReplicaSettings) -> bool:
    return settings.delivery is Delivery.AT_MOST_ONCE


def _begun_by(
    settings: ReplicaSettings, predecessors: tuple[tuple[str, ...], ...]
) -> ReplicaSettings:
    """How a new replica begins: with what it takes over; at most once, with nothing, from now."""
    if _is_lossy(settings):
        return replace(settings, predecessors=(), begins_empty=True)
    return replace(settings, predecessors=predecessors, begins_empty=False)


def _holds(process: ReplicaProcess) -> bool:
    """Whether it has something to go on from, whatever becomes of it."""
    if _is_lossy(process.settings):
        return process.up
    if isinstance(process, ProtectedProcess) and not process.pair.persist:
        return process.up and process.copy.report().boundary > 0
    return process.disk.record is not None
