"""Availability: what can be shown is shown within X per fragment.

Four checks, sampled. In every replica that is in order, no tuple waits longer than X for its
bucket to be taken, and no window for its result, once an input has been heard of beyond its end.
One that reconciles and leaves new tuples to a partner does so only while a
partner takes them. And for every client: if a fixed path of processes and links has stood
between a source and the client for long enough, the client has been told about every tuple of
that source that is older than X per fragment of the path, as stable or tentative.

A reader follows one replica of its producer. When several stand, it may be any of them, so
what is promised is what all of them can have. Paths through a replica that suspends promise
nothing while its policy says so, in a failure or a correction, and everything before and after; nor
does a copy that sleeps: how soon one wakes is standby.py's. One that recovers, finds no room on its
disk for what jobs write, or was cut off for minutes and takes what it missed first, has readers
only if it is the last: those of the others are promised X all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.consistency import NodeState, Trigger
from holdfast.core.entry import EntrySettings
from holdfast.core.records import InLog
from holdfast.core.replica import Replica
from holdfast.core.settings import SECOND_US, Policy
from holdfast.core.stream_copy import FAR_FUTURE
from holdfast.core.sunion import Release
from holdfast.simulation.checkers import Violation
from holdfast.simulation.client_process import ClientProcess
from holdfast.simulation.executor import Distinct, Window
from holdfast.simulation.replica_process import ReplicaProcess

if TYPE_CHECKING:
    from holdfast.simulation.world import World


MINUTE_US = 60 * SECOND_US


class Availability:
    """Knows every path of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        spec = world.spec
        self._operators = world.operators
        self._entries: dict[str, EntrySettings] = {one.stream: one for one in spec.entries}
        self._producers = world.producers
        timing = spec.timing
        self._x_us = timing.delay_us
        # What a hop takes when nothing is wrong: filling a bucket, its job, its messages.
        # Clocks that differ make buckets complete later, in time of the slowest.
        self._hop_us = 2 * timing.bucket_us + 4 * spec.job_us + 300_000 + 2 * world.skew_us
        self._notice_us = (timing.misses_until_down + 4) * timing.heartbeat_interval_us
        # What it takes to notice that a partner does not stand in any more.
        self._ask_us = 2 * timing.partner_timeout_us + self._x_us + self._hop_us
        self._stood_in_at: dict[str, int] = {}
        self._recovered_at: dict[str, int] = {}
        # How many failures and corrections each has had: some last for a job or two only.
        self._turns: dict[str, tuple[int, int]] = {}
        # Of each replica: the end of a window that was passed without a result, and since when.
        self._passed: dict[str, tuple[int, int]] = {}
        self._changes = -1
        self._paths: list[tuple[ClientProcess, str, int, int]] = []

    def sample(self) -> None:
        for process in self._world.replicas.values():
            if self._suspends(process):
                self._excuse(process)
            else:
                self._check_replica(process)
        if self._changes != self._world.changes:
            self._changes = self._world.changes
            self._paths = self._all_paths()
        for client, source, since, depth in self._paths:
            self._check_client(client, source, since, depth)

    def _suspends(self, process: ReplicaProcess) -> bool:
        """Whether new tuples wait because the policy says so, or have waited since the last look.

        One that gets what it missed a bucket at a time is stable in between.
        """
        driver, settings = process.replica, process.settings
        if driver is None:
            return False
        visits = driver.manager.visits
        before = self._turns.get(process.address, (0, 0))
        failures = visits[NodeState.STABLE.name, Trigger.INPUT_FAILED.name]
        corrections = visits[NodeState.UP_FAILURE.name, Trigger.RECONCILE.name]
        self._turns[process.address] = (failures, corrections)
        if failures != before[0] and settings.while_failed is Policy.SUSPEND:
            return True
        if corrections != before[1] and settings.while_stabilizing is Policy.SUSPEND:
            return True
        if driver.state in (NodeState.STABLE, NodeState.RECOVERING):
            return False
        corrects = driver.state is NodeState.STABILIZATION
        policy = settings.while_stabilizing if corrects else settings.while_failed
        return policy is Policy.SUSPEND

    def _excuse(self, process: ReplicaProcess) -> None:
        """Nothing is promised of it now; from now on it has its time again."""
        self._recovered_at[process.address] = self._world.clock.now
        self._changes = -1

    def _check_replica(self, process: ReplicaProcess) -> None:
        now = self._world.clock.now
        address = process.address
        driver = process.replica
        starts = now <= process.starting_until
        self._check_partner(process)
        away = driver is None or process.paused or process.slow or starts or process.disk.full
        if driver is None or away or not takes_tuples(driver) or self._catches_up(driver):
            self._excuse(process)
            return
        deadline = driver.sunion.next_deadline()
        waited = now + process.ahead_us - (deadline - driver.patience.alpha_x_us)
        allowed = self._x_us + self._hop_us
        since = max(self._recovered_at.get(address, 0), process.disturbed_at)
        self._check_windows(process, driver, since, allowed)
        if waited <= allowed:
            return
        if now - since > allowed:
            raise Violation(
                "availability",
                f"in {address} ({driver.state.name}) a tuple has waited "
                f"{waited / 1e6:.3f} s, X is {self._x_us / 1e6:.3f} s\n"
                f"{driver.sunion.story()}",
            )

    def _check_windows(
        self, process: ReplicaProcess, driver: Replica, since: int, allowed: int
    ) -> None:
        now, address = self._world.clock.now, process.address
        state = driver.versions.newest_state
        due = FAR_FUTURE if isinstance(state, InLog) else process.plan.due(state)
        heard = max(copy.live_boundary for copy in driver.copies.values())
        end, passed_at = self._passed.get(address, (FAR_FUTURE, now))
        if heard < due or end != due:
            self._passed[address] = (due if heard >= due else FAR_FUTURE, now)
        elif now - max(since, passed_at) > allowed:
            raise Violation(
                "availability",
                f"in {address} ({driver.state.name}) a window has ended at {due / 1e6:.3f} s, "
                f"heard of {(now - passed_at) / 1e6:.3f} s ago at least, and X is "
                f"{self._x_us / 1e6:.3f} s\n{driver.sunion.story()}",
            )

    def _catches_up(self, driver: Replica) -> bool:
        """Whether it was cut off for minutes while it held nothing: what it missed comes first."""
        behind = driver.sunion.stable_target() - driver.sunion.stable_position
        return behind > self._x_us and self._world.schedule.longest_us > MINUTE_US

    def _check_partner(self, process: ReplicaProcess) -> None:
        """Who waits for a partner is not left alone."""
        now, driver = self._world.clock.now, process.replica
        address = process.address
        waits = (
            driver is not None
            and process.running
            and not process.slow
            and driver.state is NodeState.STABILIZATION
            and driver.sunion.release is Release.SUSPEND
        )
        if not waits or driver is None or self._stands_in_for(driver):
            self._stood_in_at[address] = now
        elif now - max(self._stood_in_at[address], process.disturbed_at) > self._ask_us:
            reach = driver.sunion.reach(now + process.ahead_us)
            raise Violation(
                "availability",
                f"{address} reconciles and takes no new tuples, though it could up to "
                f"{reach / 1e6:.3f} s and no partner has for "
                f"{(now - self._stood_in_at[address]) / 1e6:.3f} s\n{driver.manager.story()}",
            )

    def _stands_in_for(self, driver: Replica) -> bool:
        now = self._world.clock.now
        me = self._world.processes[driver.settings.address]
        needed = driver.sunion.reach(now + me.ahead_us) - self._x_us - self._hop_us
        replicas = self._world.replicas
        partners = [replicas[name] for name in driver.settings.partners if name in replicas]
        return any(
            one.replica is not None and one.running and one.replica.sunion.position >= needed
            for one in partners
        )

    def _all_paths(self) -> list[tuple[ClientProcess, str, int, int]]:
        """What clients are promised: the client, the source, since when, over how many hops."""
        known: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
        return [
            (client, source, max(since, client.disturbed_at), depth)
            for client in self._world.clients.values()
            # One without an order takes nothing tentative; early.py says what it gets.
            if client.running and not client.unordered
            for source, (since, depth) in self._paths_to(
                client.address, client.driver.stream, known
            ).items()
        ]

    def _check_client(self, client: ClientProcess, source: str, since: int, depth: int) -> None:
        now = self._world.clock.now
        within = depth * (self._x_us + self._hop_us) + self._window_us(client.driver.stream)
        if now - since < within + (depth + 1) * (self._notice_us + self._x_us):
            return
        shown = client.driver.copy.live_boundary
        newest = self._newest_before(source, now - within)
        if newest >= shown:
            raise Violation(
                "availability",
                f"{client.address} was told of {client.driver.stream} up to {shown / 1e6:.3f} s, "
                f"but {source} has a tuple of {newest / 1e6:.3f} s and a path of {depth} "
                f"fragments has stood since {since / 1e6:.3f} s; now {now / 1e6:.3f} s",
            )

    def _window_us(self, stream: str) -> int:
        """For how long the windows on the way to a stream may have nothing to say.

        Short ones are no longer than what is allowed for anyway.
        """
        operator = self._operators.get(stream)
        if operator is None:
            return 0
        own = operator.size_us if isinstance(operator, Window | Distinct) else 0
        own = own if own > 11 * self._world.spec.timing.bucket_us else 0
        return own + max((self._window_us(each) for each in operator.inputs), default=0)

    def _newest_before(self, source: str, stime: int) -> int:
        rows = self._world.truth.rows.get(source, [])
        for row in reversed(rows):
            if row[0] < stime:
                return row[0]
        return -1

    def _paths_to(
        self, reader: str, stream: str, known: dict[tuple[str, str], dict[str, tuple[int, int]]]
    ) -> dict[str, tuple[int, int]]:
        """The sources that reach a reader by a stream: since when, over how many fragments."""
        choices = []
        for producer in self._producers[stream]:
            if producer in self._world.authority.gone:
                continue
            link_since = self._world.link_stands_since(producer, reader)
            paths = self._paths_at(producer, stream, known)
            if link_since is not None and paths:
                choices.append(
                    {source: (max(since, link_since), d) for source, (since, d) in paths.items()}
                )
        if not choices:
            return {}
        return {
            source: (
                max(choice[source][0] for choice in choices),
                max(choice[source][1] for choice in choices),
            )
            for source in choices[0]
            if all(source in choice for choice in choices)
        }

    def _paths_at(
        self, producer: str, stream: str, known: dict[tuple[str, str], dict[str, tuple[int, int]]]
    ) -> dict[str, tuple[int, int]]:
        """The same for what a producer itself has of a stream it serves."""
        if (producer, stream) in known:
            return known[producer, stream]
        paths: dict[str, tuple[int, int]] = {}
        process = self._world.processes[producer]
        if process.running and not process.slow and not process.disk.full:
            if stream in self._entries:
                paths = {stream: (process.disturbed_at, 0)}
            else:
                paths = self._paths_through(producer, stream, known)
        known[producer, stream] = paths
        return paths

    def _paths_through(
        self, replica: str, stream: str, known: dict[tuple[str, str], dict[str, tuple[int, int]]]
    ) -> dict[str, tuple[int, int]]:
        process = self._world.replicas[replica]
        driver = process.replica
        if self._suspends(process) or driver is None:
            return {}
        if driver.state is NodeState.RECOVERING or self._catches_up(driver):
            return {}  # readers are with the others
        since = max(process.disturbed_at, self._recovered_at.get(replica, 0))
        operator = self._operators[stream]
        by_input = [self._paths_to(replica, name, known) for name in operator.inputs]
        if operator.blocking:
            if not all(by_input):
                return {}
            since = max(since, *(min(path[0] for path in one.values()) for one in by_input))
        paths: dict[str, tuple[int, int]] = {}
        for one in by_input:
            for source, (source_since, depth) in one.items():
                path = (max(since, source_since), depth + 1)
                paths[source] = max(path, paths.get(source, path))
        return paths


def takes_tuples(driver: Replica) -> bool:
    """Whether a replica takes new tuples in its state, and not only corrected ones."""
    if driver.state is NodeState.STABILIZATION:
        # A partner that agreed takes them instead: the live version is kept, but stands still.
        waits = driver.sunion.release is Release.SUSPEND
        return driver.versions.live_position is not None and not waits
    return driver.state is not NodeState.RECOVERING
