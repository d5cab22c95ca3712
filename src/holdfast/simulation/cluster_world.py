"""A simulated cluster: tens of servers that elect a coordinator and keep one register.

The servers run the product's ``Seat`` (``core.seat``) on the simulator's clock and network. A seed
decides how many there are, what happens to them, and every random choice. Somebody submits all the
time, to whichever server; what is acknowledged is remembered and must never be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import cast

from holdfast.core.cluster_messages import (
    Answer,
    ClusterMessage,
    ClusterRecord,
    Lead,
    Offered,
    Version,
)
from holdfast.core.election import ElectionTiming, is_majority
from holdfast.core.messages import Message
from holdfast.core.seat import Seat
from holdfast.core.settings import SECOND_US
from holdfast.simulation.clock import Clock
from holdfast.simulation.cluster_checkers import ClusterChecker
from holdfast.simulation.cluster_server import SimulatedServer
from holdfast.simulation.coverage import Coverage
from holdfast.simulation.network import Network

_LOOK_US = SECOND_US // 4
# Nobody submits at the end, so that everybody can have the last of it.
_QUIET_US = 10 * SECOND_US
# Some elections fail because two stand at once; after so many silences one has succeeded.
_SILENCES = 14
# How much longer a slow link is.
_FAR_US = 300_000


@dataclass(frozen=True)
class ClusterFault:
    """What happens to some servers, from when to when."""

    at_us: int
    until_us: int
    kind: str
    servers: tuple[str, ...]

    def __str__(self) -> str:
        when = f"{self.at_us / SECOND_US:7.2f} to {self.until_us / SECOND_US:7.2f} s"
        return f"{when}  {self.kind} {' '.join(self.servers)}"


@dataclass(frozen=True)
class ClusterScenario:
    """How many servers there are, who of them votes, and what happens to them.

    pause_s  about how often something is submitted.
    """

    seed: int
    servers: int
    voters: int
    calm_us: int
    ends_us: int
    faults: tuple[ClusterFault, ...]
    pause_s: float = 0.4


class ClusterWorld:
    """Runs a scenario."""

    timing = ElectionTiming()

    def __init__(self, scenario: ClusterScenario) -> None:
        random = Random(scenario.seed)
        self._random = random
        self.clock = Clock()
        self.checker = ClusterChecker()
        self.coverage = Coverage()
        self.names = [f"s{index}" for index in range(scenario.servers)]
        self.voters = tuple(self.names[: scenario.voters])
        self._scenario = scenario
        # Some disks take their time, so that much happens meanwhile.
        self.longest_write_us = random.choice((8_000, 8_000, 500_000))
        self._network = Network(self.clock, random, {name: name for name in self.names})
        self._network.deliver = self._deliver
        first = ClusterRecord(voters=self.voters)
        self.servers = {
            name: SimulatedServer(self, name, first, Random(f"{scenario.seed} {name}"))
            for name in self.names
        }
        self._submitted = 0
        self._well: tuple[frozenset[str], int] = (frozenset(), 0)
        # Who coordinates a majority that is well, and since when.
        self._steady: tuple[str, int] = ("", 0)
        self._alone_since: dict[str, int] = {}
        self._deaf_since: dict[str, int] = {}
        # How long each time without a coordinator lasted, among servers that could have one.
        self.elections_us: list[int] = []
        self._lost_at: int | None = None

        for server in self.servers.values():
            self.clock.after(int(random.random() * SECOND_US), server.start)
        for fault in scenario.faults:
            self.clock.at(fault.at_us, self._begin, fault)
        self.clock.after(SECOND_US, self._submit)
        self.clock.after(_LOOK_US, self._look)

    def run_until(self, end_us: int) -> None:
        """Let time pass; raises where a promise is broken."""
        self.clock.run_until(end_us)

    def run(self) -> None:
        """To the end, when all has been well for long."""
        self.run_until(self._scenario.ends_us)
        self.checker.ends({name: self.servers[name].record.value for name in self.names})
        for server in self.servers.values():
            if server.seat is not None:
                self.collect(server.seat)

    def collect(self, seat: Seat) -> None:
        """Which transitions it has taken."""
        self.coverage.collect((seat.election, seat.register))

    # -- messages ------------------------------------------------------------------------

    def send(self, source: str, target: str, message: ClusterMessage) -> None:
        if isinstance(message, Lead):
            self.checker.speaks(source, message)
        # To the network a call is a call.
        self._network.send(source, target, cast(Message, message))

    def _deliver(self, source: str, target: str, message: Message) -> None:
        said = cast(ClusterMessage, message)
        server = self.servers[target]
        if not server.running:
            return
        # It may be heard for less long than somebody looks.
        self._deaf_since.pop(target, None)
        server.receive(source, said)
        seat = server.seat
        if isinstance(said, Lead) and seat is not None and seat.election.coordinator == source:
            self.checker.obeys_word(target, source, said.term, seat.election.term)

    # -- submitting ----------------------------------------------------------------------

    def _submit(self) -> None:
        after = int(
            self._scenario.pause_s * self._random.choice((0.05, 1, 5)) * self._random.random() * 1e6
        )
        if self.clock.now + after > self._scenario.ends_us - _QUIET_US:
            return
        self.clock.after(after, self._submit)
        asked = self.servers[self._random.choice(self.names)]
        if asked.running and asked.seat is not None and asked.seat.election.coordinator:
            # As the product does: whoever is asked hands it on to the coordinator it knows.
            asked = self.servers[asked.seat.election.coordinator]
        if asked.seat is None:
            return
        # Somebody may have changed the value before what was made of it is offered.
        thinking = self._random.choice((0, 0, 50_000))
        read = (asked.seat.register.version, asked.seat.register.value)
        self.clock.after(thinking, self._offer, asked, *read)

    def _offer(self, asked: SimulatedServer, version: Version, value: str) -> None:
        seat = asked.seat
        if seat is None or asked.paused:
            return
        self._submitted += 1
        number, entry = self._submitted, f"e{self._submitted}"

        def answered(answer: Answer) -> None:
            if answer.version is not None:
                self.checker.acknowledges(asked.name, entry, answer.version)

        asked.on_answer[number] = answered
        value = f"{value} {entry}".strip()
        asked.take(Offered(number, version, value))
        if seat.register.value == value:
            self.checker.offers(seat.register.version, value)

    # -- faults --------------------------------------------------------------------------

    def _hit(self, chosen: list[str]) -> None:
        """Something happens to these."""
        if self._steady[0] in chosen:
            self._steady = ("", 0)

    def started(self, server: SimulatedServer) -> None:
        """A server is up, for the first time or again."""

    def obeyed(self, server: SimulatedServer) -> None:
        """A server has another desired state."""

    def elected(self, server: SimulatedServer) -> None:
        """Somebody coordinates; sometimes not for long."""
        if self.clock.now < self._scenario.calm_us and self._random.random() < 0.3:
            after = int(self._random.random() * 40_000)
            self.clock.after(after, self._begin, self._short_lived(server.name))

    def _short_lived(self, name: str) -> ClusterFault:
        now = self.clock.now
        return ClusterFault(
            now, now + int(self._random.uniform(2, 10) * SECOND_US), "crash", (name,)
        )

    def _begin(self, fault: ClusterFault) -> None:
        chosen = [self._who(name) for name in fault.servers]
        if fault.kind in ("crash", "pause", "full disk"):
            self._hit(chosen)
        servers = [self.servers[name] for name in chosen]
        island = frozenset(chosen)
        match fault.kind:
            case "crash":
                for server in servers:
                    server.crash()
            case "pause":
                for server in servers:
                    server.pause()
            case "full disk":
                for server in servers:
                    server.disk_full = True
            case "partition":
                self._network.part(island)
            case "cut" | "cut one way" | "flap":
                self._cut(fault.kind, chosen, begins=True)
            case "slow":
                self._slow(chosen, _FAR_US)
        self.clock.at(fault.until_us, self._end, fault, chosen)
        if fault.kind == "flap":
            self._flap(fault, chosen, cut=True)

    def _end(self, fault: ClusterFault, chosen: list[str]) -> None:
        servers = [self.servers[name] for name in chosen]
        match fault.kind:
            case "crash":
                for server in servers:
                    server.start()
            case "pause":
                for server in servers:
                    server.go_on()
            case "full disk":
                for server in servers:
                    server.disk_full = False
            case "partition":
                self._network.rejoin(frozenset(chosen))
            case "cut" | "cut one way":
                self._cut(fault.kind, chosen, begins=False)
            case "slow":
                self._slow(chosen, -_FAR_US)

    def _who(self, name: str) -> str:
        """ "coordinator" is whoever coordinates when it happens."""
        if name != "coordinator":
            return name
        leading = [
            each.name
            for each in self.servers.values()
            if each.seat is not None and each.seat.election.is_coordinating
        ]
        return self._random.choice(leading or self.names)

    def _cut(self, kind: str, chosen: list[str], begins: bool) -> None:
        change = self._network.cut if begins else self._network.heal
        here, *others = chosen
        for there in others:
            if here == there:
                continue
            change(here, there)
            if kind != "cut one way":
                change(there, here)

    def _flap(self, fault: ClusterFault, chosen: list[str], cut: bool) -> None:
        """The links are cut and whole again, every second or so."""
        if not cut:
            self._cut("flap", chosen, begins=True)
        is_over = self.clock.now >= fault.until_us
        after = int(self._random.uniform(0.2, 1.5) * SECOND_US)
        self.clock.after(after, self._unflap, fault, chosen, is_over)

    def _unflap(self, fault: ClusterFault, chosen: list[str], is_over: bool) -> None:
        self._cut("flap", chosen, begins=False)
        if not is_over:
            after = int(self._random.uniform(0.2, 1.5) * SECOND_US)
            self.clock.after(after, self._flap, fault, chosen, False)

    def _slow(self, chosen: list[str], by_us: int) -> None:
        for here in chosen:
            for there in self.names:
                if here != there:
                    self._network.slow(here, there, by_us)
                    self._network.slow(there, here, by_us)

    # -- looking -------------------------------------------------------------------------

    def _hears(self, here: str, there: str) -> bool:
        link = self._network.link(there, here)
        return self.servers[there].running and not link.cuts

    def _is_well(self, group: frozenset[str]) -> bool:
        """Whether nothing but distance is between some servers, and their disks work."""
        links = [self._network.link(here, there) for here in group for there in group]
        return all(link.slow_us <= _FAR_US for link in links) and not any(
            self.servers[name].disk_full for name in group
        )

    def _in_touch(self, here: str) -> frozenset[str]:
        """The voters that a server can talk with, both ways."""
        return frozenset(
            name
            for name in self.voters
            if name == here or (self._hears(here, name) and self._hears(name, here))
        )

    def _look(self) -> None:
        self.clock.after(_LOOK_US, self._look)
        now = self.clock.now
        groups = {
            name: self._in_touch(name) if self.servers[name].running else frozenset()
            for name in self.names
        }
        for name, group in groups.items():
            self._look_at(name, group, now)
            self._look_at_deaf(name, now)
        self._look_at_steady(groups, now)
        group = self._managing(groups)
        if group != self._well[0]:
            self._well = (group, now)
        if not group:
            self._lost_at = None
            return
        coordinators = {self._coordinator_of(name) for name in group}
        managed = len(coordinators) == 1 and coordinators <= group
        if managed and self._lost_at is not None:
            self.elections_us.append(now - self._lost_at)
        self._lost_at = None if managed else self._lost_at or max(self._well[1], now - _LOOK_US)
        if now - self._well[1] > _SILENCES * self.timing.silence_us:
            self.checker.is_managed(managed, f"{sorted(group)} follow {sorted(coordinators)}")

    def _look_at_steady(self, groups: dict[str, frozenset[str]], now: int) -> None:
        """A coordinator that has been in touch with a majority all the time stays one."""
        name, since = self._steady
        if name:
            group = groups[name]
            if not is_majority(len(group), self.voters) or not self._is_well(group):
                self._steady = ("", 0)
            elif not self._coordinates(name):
                if now - since > self.timing.silence_us:
                    self.checker.deposes(name)
                self._steady = ("", 0)
            return
        for name in self.voters:
            if self._coordinates(name):
                self._steady = (name, now)

    def _coordinates(self, name: str) -> bool:
        seat = self.servers[name].seat
        return seat is not None and seat.election.is_coordinating

    def _managing(self, groups: dict[str, frozenset[str]]) -> frozenset[str]:
        """The majority that all talk with each other, if there is one."""
        for group in set(groups.values()):
            large = is_majority(len(group), self.voters)
            if large and all(groups[each] == group for each in group) and self._is_well(group):
                return group
        return frozenset()

    def _coordinator_of(self, name: str) -> str:
        seat = self.servers[name].seat
        return seat.election.coordinator if seat is not None else ""

    def _look_at(self, name: str, group: frozenset[str], now: int) -> None:
        """Who has no majority in reach for long does not coordinate."""
        server = self.servers[name]
        if not server.running or server.seat is None or is_majority(len(group), self.voters):
            self._alone_since.pop(name, None)
            return
        since = self._alone_since.setdefault(name, now)
        if now - since > self.timing.silence_us + 2 * SECOND_US and self._coordinates(name):
            self.checker.has_quorum(name, group)

    def _look_at_deaf(self, name: str, now: int) -> None:
        """Who hears nobody for long says that nothing is managed."""
        server = self.servers[name]
        heard = any(self._hears(name, other) for other in self.names if other != name)
        if heard or not server.running or server.seat is None or len(self.voters) == 1:
            self._deaf_since.pop(name, None)
            return
        since = self._deaf_since.setdefault(name, now)
        if now - since > 2 * self.timing.silence_us + 2 * SECOND_US:
            self.checker.is_managed(
                not server.seat.has_majority, f"{name} is alone and says it is managed"
            )
