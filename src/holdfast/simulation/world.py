"""The simulated world: processes on servers, the network between them, faults and checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from holdfast.core.effects import TrimLog
from holdfast.core.events import (
    CheckpointNotSent,
    FeedLost,
    KeptMeasured,
    MessageArrived,
    PeerUnreachable,
)
from holdfast.core.messages import (
    CheckpointShipped,
    CopyRequest,
    HeartbeatRequest,
    Message,
    NotServed,
    Subscribe,
    SubscribeRefused,
)
from holdfast.core.settings import SECOND_US
from holdfast.simulation.authority import Authority
from holdfast.simulation.checkers import (
    Violation,
    buffers,
    consistency,
    membership,
    progress,
    sources,
    tentative,
)
from holdfast.simulation.checkers.availability import Availability
from holdfast.simulation.checkers.bounded import BoundChecks
from holdfast.simulation.checkers.client import ClientChecks
from holdfast.simulation.checkers.convergence import Truth
from holdfast.simulation.checkers.early import Early
from holdfast.simulation.checkers.joining import JoinChecks
from holdfast.simulation.checkers.kept import KeptChecks
from holdfast.simulation.checkers.race import Race
from holdfast.simulation.checkers.ring import RingChecks
from holdfast.simulation.checkers.stable_tree import StableTree
from holdfast.simulation.checkers.standby import StandbyChecks
from holdfast.simulation.checkpointing import CheckpointingProcess
from holdfast.simulation.client_process import ClientProcess
from holdfast.simulation.clock import Clock, ServerClock, follow
from holdfast.simulation.conditions import Conditions
from holdfast.simulation.coverage import Coverage
from holdfast.simulation.described import described
from holdfast.simulation.entry_process import EntryProcess
from holdfast.simulation.executor import Operator
from holdfast.simulation.faults import PAIRWISE, Fault, FaultKind, Moment, Schedule
from holdfast.simulation.network import Network
from holdfast.simulation.networks import NetworkSpec
from holdfast.simulation.process import Process
from holdfast.simulation.protected_process import ProtectedProcess
from holdfast.simulation.replica_process import ReplicaProcess

# What a reader is told that asks for more than there is.
GONE = (NotServed.TRIMMED, NotServed.NOT_HERE)
# Counted when they have hit somebody.
COUNTED = (
    FaultKind.DISK_LOST,
    FaultKind.REMOVED,
    FaultKind.ADDED,
    FaultKind.RESCALED,
    FaultKind.CALLED_OFF,
    FaultKind.MOVED,
)


class World:
    """One run: build it, let it run, ask it what was wrong."""

    def __init__(
        self,
        spec: NetworkSpec,
        schedule: Schedule,
        random: Random,
        server_of: dict[str, str],
        tell: Callable[[str], None] | None = None,
        conditions: Conditions | None = None,
    ) -> None:
        self.spec = spec
        self.schedule = schedule
        self.random = random
        self.server_of = server_of
        self.clock = Clock()
        self.coverage = Coverage()
        self.truth = Truth()
        self.client_checks = ClientChecks(self)
        self.joins = JoinChecks(self)
        # Who provides each stream, and what computes it, new shards included.
        self.producers = spec.producers
        self.operators: dict[str, Operator] = {
            stream: operator for one in spec.fragments for stream, operator in one.plan.outputs
        }
        self.authority = Authority(self)
        # How often another number of shards has taken over.
        self.rescaled = 0
        self.source_stop = schedule.end
        conditions = conditions or Conditions.draw(random, schedule)
        self.network = Network(self.clock, random, server_of, conditions.quality)
        self.network.deliver = self._deliver
        self.network.lose_feed = self._lose_feed
        self.network.fail_call = self._fail_call
        self.job_failure_rate = conditions.job_failure_rate
        self.longest_append_us = conditions.longest_append_us
        self.longest_pack_us = conditions.longest_pack_us
        self.whole_us = conditions.whole_us
        self.skew_us = conditions.skew_us
        self._sample_us = conditions.sample_us
        self._start_us = conditions.start_us
        # Counts what happens to processes and links; what depends only on them need be found
        # out again only when it has grown.
        self.changes = 0
        self.source_lost = False
        self.narrates = tell is not None
        self.servers = sorted(set(server_of.values()))
        self.clocks = {
            server: ServerClock(
                int(random.random() * self.skew_us), int(random.random() * self.skew_us / 500)
            )
            for server in self.servers
        }
        # Processes follow a clock that was set, for as long as it is.
        self.skew_us += schedule.longest_step_us // 20
        # Which faults have hit a process in use, or a link.
        self.hits: Counter[str] = Counter()
        # What processes were told, by the kind of event.
        self.events: Counter[type] = Counter()
        # What processes did not listen to, by the kind of message.
        self.refusals: Counter[type] = Counter()
        self._tell = tell
        self._told: dict[str, str] = {}
        self._down: Counter[str] = Counter()
        # Servers that are down as a whole: nobody there refuses a connection.
        self._dark: set[str] = set()
        self._build()
        self.standby = StandbyChecks(self)
        self.rings = RingChecks(self)
        self.kept = KeptChecks(self)
        self.bounds = BoundChecks(self)
        self.availability = Availability(self)
        self.stable_tree = StableTree(self)
        self.race = Race(self)
        self.early = Early(self)

    def _build(self) -> None:
        spec = self.spec
        plans = {name: one.plan for one in spec.fragments for name in one.addresses}
        interval_us = max(spec.timing.bucket_us, 150_000)
        pairs = {name: one.standby for one in spec.fragments for name in one.addresses}
        self.replicas: dict[str, ReplicaProcess] = {}
        self.copies: dict[str, ProtectedProcess] = {}
        for address, settings in spec.replica_settings().items():
            pair, plan = pairs[address], plans[address]
            if pair is None:
                self.replicas[address] = CheckpointingProcess(self, settings, plan, spec.job_us)
            else:
                copy = ProtectedProcess(self, settings, pair, plan, spec.job_us, spec.start_us)
                self.replicas[address] = self.copies[address] = copy
        self.entries = {one.address: EntryProcess(self, one, interval_us) for one in spec.entries}
        self.clients = {one.address: ClientProcess(self, one) for one in spec.clients}
        self.processes: dict[str, Process] = {**self.entries, **self.replicas, **self.clients}

    # -- running ------------------------------------------------------------------------

    def run(self) -> None:
        """From the start until all has been well again for a while; raises what goes wrong.

        The schedule's end is when all must be well. Most runs are there much sooner, and more
        of the same would show nothing new.
        """
        self.begin()
        self.clock.run_until(self.schedule.healed_at)
        lasting_us = self.spec.timing.delay_us + 5 * SECOND_US
        well_since: int | None = None
        while self.clock.now < self.schedule.end:
            self.clock.run_until(min(self.clock.now + SECOND_US, self.schedule.end))
            if not self.is_well():
                well_since = None
            elif well_since is None:
                well_since = self.clock.now
            elif self.clock.now - well_since >= lasting_us:
                break
        self.finish()

    def is_well(self) -> bool:
        """Whether what is promised of the end of a run holds already."""
        try:
            self._check_calm()
        except Violation:
            return False
        return True

    def begin(self) -> None:
        """Everything that is known to happen goes onto the clock."""
        for process in self.processes.values():
            self.clock.after(int(self.random.random() * self._start_us), process.start)
        for fault in self.schedule.faults:
            self.clock.at(fault.start, self._begin, fault)
            self.clock.at(fault.end, self._end, fault)
        self.clock.after(self._sample_us, self._sample)
        if any(one.settings.bounds for one in self.replicas.values()) or any(
            one.settings.bound for one in self.entries.values()
        ):
            self.clock.after(SECOND_US, self._measure)

    def _measure(self) -> None:
        """Where there are bounds, processes look at how much they keep."""
        for process in (*self.entries.values(), *self.replicas.values()):
            process.receive(KeptMeasured(process.kept_sizes(), process.tentative_sizes()))
        self.clock.after(SECOND_US, self._measure)

    def finish(self) -> None:
        """The checks at the end, when all has been well for a while."""
        for process in self.processes.values():
            self.coverage.collect(process.machines())
        sources.check(self)
        if not self.source_lost:
            # What an entry point's log had is nowhere else, and nobody can hold all of it.
            consistency.check(self)
        if not self.standby.void:
            tentative.check(self)
        self._check_calm()

    def _check_calm(self) -> None:
        if not self.standby.void:
            progress.check(self)
            self.standby.check_end()
            buffers.check(self)
            membership.check(self)

    def _sample(self) -> None:
        for clock in self.clocks.values():
            clock.drift(self._sample_us)
        for process in self.processes.values():
            process.ahead_us = follow(process.ahead_us, process.clock, self._sample_us)
            if process.running:
                process.driver.validate()
        if not self.standby.void:
            self.standby.sample()
            self.rings.sample()
            self.joins.sample()
            self.kept.sample()
            self.bounds.sample()
            self.availability.sample()
            sources.sample(self)
            self.stable_tree.sample()
            self.race.sample()
            self.early.sample()
        self.clock.after(self._sample_us, self._sample)

    def _deliver(self, source: str, target: str, message: Message) -> None:
        if isinstance(message, SubscribeRefused) and message.why in GONE:
            consumer = self.processes[target].consumer
            # Whoever has jumped ahead may still be answered about where it was.
            if self.processes[target].disk_lost or target in self.authority.gone:
                self._told_of_loss(source, target, message.text)
            elif not self.standby.void and consumer is not None and consumer.needs(message.feed):
                self.joins.refused(source, target, message.text)
        process = self.processes[target]
        if process.up and isinstance(message, HeartbeatRequest):
            self.joins.deliver(process, source, message)
        elif process.up:
            process.receive(MessageArrived(source, message))
        elif isinstance(message, Subscribe):
            # A machine that is down does not even refuse.
            after_us = SECOND_US if self.server_of[target] in self._dark else 1_000
            self.clock.after(after_us, self.network.refuse, source, message.feed)
        elif isinstance(message, CopyRequest) and self.server_of[target] not in self._dark:
            self.clock.after(1_000, self._nobody_listens, source, target)
        else:
            self.clock.after(1_000, self._fail_call, source, message)

    def refused(self, sender: str, message: Message) -> None:
        """A node does not listen to a sender: an error to that one, and nothing to the driver."""
        self.refusals[type(message)] += 1
        if isinstance(message, Subscribe):
            self.clock.after(1_000, self.network.refuse, sender, message.feed)
        else:
            self.clock.after(1_000, self._fail_call, sender, message)

    def _fail_call(self, source: str, message: Message) -> None:
        if isinstance(message, CheckpointShipped):
            number = message.checkpoint.number
            self.processes[source].receive(CheckpointNotSent(number, "nobody took it"))

    def _told_of_loss(self, source: str, target: str, reason: str) -> None:
        """Who has lost its disk is told that it cannot go on; another replica may help it."""
        if target in self.authority.gone:
            return
        if target not in self.copies and not self.joins.is_known_to_others(target):
            self.give_up(f"{target} is told by {source}: {reason}")

    def give_up(self, why: str) -> None:
        """Something is lost for good: nothing more is promised, except that nothing is wrong."""
        if not self.standby.void:
            self.standby.void = True
            self._say(f"nothing is promised from here on: {why}")

    def _lose_feed(self, reader: str, feed: int) -> None:
        self.processes[reader].receive(FeedLost(feed))

    def _nobody_listens(self, asker: str, target: str) -> None:
        back = self.network.link(self.server_of[target], self.server_of[asker])
        if not back.cuts:
            self.processes[asker].receive(PeerUnreachable(target))

    def link_stands_since(self, one: str, other: str, late: bool = False) -> int | None:
        """Since when messages flow both ways; None if they do not now, or ``late`` only."""
        a, b = self.server_of[one], self.server_of[other]
        there, back = self.network.link(a, b), self.network.link(b, a)
        if there.cuts or back.cuts or ((there.slow_us or back.slow_us) and not late):
            return None
        return max(there.changed_at, back.changed_at)

    def is_lost(self, server: str) -> bool:
        """Whether a server is crashed now."""
        return bool(self._down[server])

    def is_down(self, address: str) -> bool:
        return self.is_lost(self.server_of[address])

    # -- faults -------------------------------------------------------------------------

    def _at(self, server: str) -> list[Process]:
        return [one for name, one in self.processes.items() if self.server_of[name] == server]

    def _begin(self, fault: Fault) -> None:
        self._say(f"{fault.kind.value} begins: {', '.join(fault.servers)}")
        if fault.kind not in COUNTED and self._hits(fault):
            self.hits[fault.kind.value] += 1
        self._apply(fault, begins=True)

    def _hits(self, fault: Fault) -> bool:
        """Whether a process in use is hit, or a link with a feed."""
        servers = fault.servers
        if fault.kind in PAIRWISE:
            return self.network.in_use(*servers)
        if fault.kind is FaultKind.PARTITION:
            others = [one for one in self.servers if one not in servers]
            return any(self.network.in_use(one, two) for one in servers for two in others)
        return any(one.up for one in self._at(servers[0]))

    @property
    def faults(self) -> Counter[str]:
        """How often each kind of failure has happened to somebody."""
        torn = sum(process.disk.torn for process in self.processes.values())
        return self.hits + self.network.counts + Counter({"torn write": torn})

    def _end(self, fault: Fault) -> None:
        self._say(f"{fault.kind.value} ends: {', '.join(fault.servers)}")
        self._apply(fault, begins=False)

    def _apply(self, fault: Fault, begins: bool) -> None:
        self.changes += 1
        match fault.kind:
            case FaultKind.CRASH if begins:
                self._await_crash(fault)
            case FaultKind.CRASH:
                self._crash(fault.servers[0], begins)
            case FaultKind.STOPPED:
                self._crash(fault.servers[0], begins, in_order=True)
            case FaultKind.DISK_LOST:
                self._crash(fault.servers[0], begins, loses_disk=True)
            case FaultKind.CLOCK_STEP:
                self.clocks[fault.servers[0]].set_by(fault.by_us if begins else -fault.by_us)
            case FaultKind.PARTITION:
                part = self.network.part if begins else self.network.rejoin
                part(frozenset(fault.servers))
            case FaultKind.PAUSE:
                for process in self._at(fault.servers[0]):
                    process.pause() if begins else process.resume()
            case FaultKind.SLOW:
                for process in self._at(fault.servers[0]):
                    process.slow += 1 if begins else -1
                    process.disturbed_at = self.clock.now
            case FaultKind.BUSY:
                for process in self._at(fault.servers[0]):
                    process.busy += 1 if begins else -1
            case FaultKind.HANG:
                for process in self._at(fault.servers[0]):
                    if isinstance(process, ReplicaProcess):
                        process.hang() if begins else process.go_on()
            case FaultKind.DISK_FULL:
                for process in self._at(fault.servers[0]):
                    process.disk.full = begins
                    process.disturbed_at = self.clock.now
            case FaultKind.REMOVED:
                if begins and self.authority.remove(fault.servers[0]):
                    self.hits[FaultKind.REMOVED.value] += 1
            case FaultKind.ADDED:
                if begins and self.authority.add(fault.servers[0]):
                    self.hits[FaultKind.ADDED.value] += 1
            case FaultKind.COLLECTED:
                if begins and self.authority.collect():
                    self.hits[FaultKind.COLLECTED.value] += 1
            case FaultKind.MOVED:
                if begins and self.authority.moving.begin(fault.servers[0]):
                    self.hits[FaultKind.MOVED.value] += 1
            case FaultKind.RESCALED:
                if begins and self.authority.rescaling.begin():
                    self.hits[FaultKind.RESCALED.value] += 1
            case FaultKind.CALLED_OFF:
                if begins and self.authority.rescaling.call_off():
                    self.hits[FaultKind.CALLED_OFF.value] += 1
            case FaultKind.SILENCE:
                for process in self._at(fault.servers[0]):
                    if isinstance(process, EntryProcess):
                        process.silent += 1 if begins else -1
                        process.disturbed_at = self.clock.now
            case _:
                self._apply_to_links(fault, begins)

    def _crash(
        self, server: str, begins: bool, loses_disk: bool = False, in_order: bool = False
    ) -> None:
        self._down[server] += 1 if begins else -1
        machine = begins and not in_order and self.random.random() < 0.3
        (self._dark.add if machine else self._dark.discard)(server)
        for process in self._at(server):
            if begins:
                process.stop() if in_order else process.crash(machine)
                # A client that has lost its place cannot go on: what was before is acknowledged.
                if loses_disk and not isinstance(process, ClientProcess):
                    self._lose_disk(process)
            elif not self._down[server]:
                process.start()

    def _await_crash(self, fault: Fault) -> None:
        """Crash at the moment that a fault names, or else now or when something is written."""
        server, by = fault.servers[0], (fault.start + fault.end) // 2
        if fault.moment is not Moment.ANY:
            self._crash_when(lambda one: one.is_at(fault.moment), server, by)
        elif self.random.random() < 0.5:
            by = min(by, fault.start + 300_000)
            self._crash_when(lambda one: one.disk.writing, server, by)
        else:
            self._crash(server, begins=True)

    def _crash_when(self, is_time: Callable[[Process], bool], server: str, by: int) -> None:
        if self.clock.now < by and not any(is_time(one) for one in self._at(server)):
            self.clock.after(500, self._crash_when, is_time, server, by)
            return
        self.changes += 1
        self._crash(server, begins=True)

    def _lose_disk(self, process: Process) -> None:
        """What a disk had is gone; an entry point's log is nowhere else.

        Who has read nothing of that log cannot tell that it is gone: then it stays.
        """
        if isinstance(process, EntryProcess):
            stream = process.settings.stream
            if not all(self._has_read(name, stream) for name in process.settings.consumers):
                return
            self.give_up(f"{process.address} has lost its log")
            self.source_lost = True
        elif self.source_lost:
            self.truth.void = True
        process.lose_disk()
        self.joins.forgot(process.address)
        self.hits[FaultKind.DISK_LOST.value] += 1

    def _has_read(self, reader: str, stream: str) -> bool:
        process = self.processes[reader]
        if process.up and process.consumer is not None:
            return process.consumer.upstreams[stream].copy.next_id > 0
        record = process.disk.record
        return record is not None and dict(record.inputs).get(stream, 0) > 0

    def _apply_to_links(self, fault: Fault, begins: bool) -> None:
        for link in self._links_of(fault):
            match fault.kind:
                case FaultKind.SLOW_LINK:
                    self.network.slow(*link, 700_000 if begins else -700_000)
                case FaultKind.LOSE_CONNECTION:
                    self.network.lose_connections(*link)
                case _:
                    (self.network.cut if begins else self.network.heal)(*link)

    def _links_of(self, fault: Fault) -> list[tuple[str, str]]:
        a, b = fault.servers
        return [(a, b)] if fault.kind is FaultKind.CUT_ONE_WAY else [(a, b), (b, a)]

    # -- the story ----------------------------------------------------------------------

    def _say(self, what: str) -> None:
        if self._tell is not None:
            self._tell(f"{self.clock.now / SECOND_US:10.3f} s  {what}")

    def trims(self, process: Process, order: TrimLog) -> None:
        """A process trims its log."""
        if self.authority.gone and not self.standby.void:
            membership.trims(process, order)

    def narrate(self, process: Process) -> None:
        """Tell what has changed in a process; called after every event if anyone listens."""
        text = described(process)
        if text and self._told.get(process.address) != text:
            self._told[process.address] = text
            self._say(f"{process.address:8} {text}")
