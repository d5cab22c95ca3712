"""Copies of passive and hybrid fragments that move in a simulated world, as the command does it.

The copy that is to go is relieved, then another one takes its place, at once or after a while in
which its place is empty. Now and then nobody is relieved: the machine is lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.core.messages import CopyState
from holdfast.core.records import Membership
from holdfast.core.settings import SECOND_US
from holdfast.simulation.clock import ServerClock
from holdfast.simulation.protected_process import ProtectedProcess

if TYPE_CHECKING:
    from holdfast.simulation.authority import Authority
    from holdfast.simulation.world import World

LOOK_US = SECOND_US // 4


class Moving:
    """The moves of a world."""

    def __init__(self, world: World, authority: Authority) -> None:
        self._world = world
        self._authority = authority
        # Copies that are asked to hand over, or are gone while nobody has their place yet.
        self._leaving: set[str] = set()

    @property
    def is_under_way(self) -> bool:
        return bool(self._leaving)

    def begin(self, server: str) -> bool:
        """A copy at a server is to move elsewhere; whether there is one that can."""
        world = self._world
        for process in world.copies.values():
            if world.server_of[process.address] == server and self._can_move(process):
                self._move(process)
                return True
        return False

    def _can_move(self, process: ProtectedProcess) -> bool:
        others = self._others(process)
        known = any(self._holds(one) for one in others)
        return known and not self._leaving & {*process.pair.copies}

    def _others(self, process: ProtectedProcess) -> list[ProtectedProcess]:
        copies = self._world.copies
        names = process.pair.others_than(process.address)
        return [copies[name] for name in names if name in copies]

    @staticmethod
    def _holds(process: ProtectedProcess) -> bool:
        """Whether it has what the fragment goes on from, whatever becomes of it."""
        if process.pair.persist:
            return process.disk.record is not None
        return process.up and process.copy.report().boundary >= 0

    def _move(self, process: ProtectedProcess) -> None:
        if self._world.random.random() < 0.25:
            self._replace(process)  # its machine is lost
            return
        self._leaving.add(process.address)
        self._authority.decide(self._authority.membership.without_soon(process.address))
        self._world.clock.after(LOOK_US, self._look, process)

    def _look(self, process: ProtectedProcess) -> None:
        """Whether another copy has taken over."""
        name = process.address
        relieved = not (process.up and process.copy.switch.running) and any(
            one.running and self._holds(one) and one.copy.state is CopyState.PRIMARY
            for one in self._others(process)
        )
        if relieved:
            self._leaving.discard(name)
            self._replace(process)
        else:
            self._world.clock.after(LOOK_US, self._look, process)

    def _replace(self, process: ProtectedProcess) -> None:
        world, authority = self._world, self._authority
        other = next(one for one in self._others(process) if self._holds(one))
        name = f"{process.address}+{authority.membership.epoch + 1}"
        if world.random.random() < 0.5:
            after = authority.membership.with_in_place_of(name, other.address, process.address)
            arrives = self._make(name, process, other, after)
            authority.dismiss({process.address: process}, after)
            arrives.start()
        else:
            authority.dismiss({process.address: process})
            self._leaving.add(process.address)
            # Its place is empty for a while.
            wait_us = int(world.random.uniform(0.2, 6) * SECOND_US)
            world.clock.after(wait_us, self._fill, name, process, other)

    def _fill(self, name: str, gone: ProtectedProcess, other: ProtectedProcess) -> None:
        after = self._authority.membership.with_another(name, other.address)
        arrives = self._make(name, gone, other, after)
        self._leaving.discard(gone.address)
        self._authority.decide(after)
        arrives.start()

    def _make(
        self, name: str, gone: ProtectedProcess, other: ProtectedProcess, after: Membership
    ) -> ProtectedProcess:
        """A copy that finds nothing, beside the other one."""
        world, server = self._world, f"n{name}"
        world.server_of[name] = server
        world.clocks[server] = ServerClock(0, 0)
        pair = other.pair.among(after)
        for one in {other.address: other, **self._world.copies}.values():
            if one is not gone and one.address in pair.copies:
                one.pair = pair  # as its file would say when it starts again
        settings = replace(gone.settings.among(after), address=name, partners=())
        settings = replace(settings, begins_empty=False)
        process = ProtectedProcess(world, settings, pair, gone.plan, *gone.speeds)
        process.disk_lost = True
        world.replicas[name] = world.copies[name] = world.processes[name] = process
        return process
