"""The faults: each is made on a deployment that runs, lasts a while, and is over.

A kind is a name and what it does; ``Strike`` is one fault of a kind and whom it hit. Those that
hit a replica's process come twice, at each of the two; a strike counts for the protections whose
running copy was there. Disks and clocks fail everywhere at once, and count for all.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.faults_deployment import PROTECTIONS, REPLICAS, X_SECONDS, Deployed, send_all
from holdfast.flight.roles import Role
from holdfast.flight.security import Security
from holdfast.plans.addresses import Addresses
from holdfast.testing.fuzz import Caller, Fuzz

STOP_SECONDS = 2.5 * X_SECONDS
DISK_SECONDS = 6.0
MINUTE_US = 60_000_000
RESTARTS = 50
# Files of a process, by what they are; the patterns are those of holdfast.disk.
FILES = {
    "output-logs": (REPLICAS, "*/streams/*"),
    "states": (REPLICAS, "*/state/*"),
    "input-log": (("entry-load",), "*/streams/*"),
    "ledger": (("entry-load",), "*ledger*"),
    "sinks": (tuple(f"sink-{name}" for name in PROTECTIONS), "*.jsonl"),
    "positions": (tuple(f"sink-{name}" for name in PROTECTIONS), "*position.json*"),
}


@dataclass(frozen=True)
class Strike:
    """One fault that is over."""

    kind: str
    target: str
    protections: frozenset[str]


Fault = Callable[[Deployed, str], None]


def kill_process(deployed: Deployed, target: str) -> None:
    os.killpg(deployed.running(target).pid, signal.SIGKILL)


def kill_jvm(deployed: Deployed, target: str) -> None:
    send_all(deployed.jvm(target), signal.SIGKILL)


def kill_worker(deployed: Deployed, target: str) -> None:
    send_all(deployed.workers(target), signal.SIGKILL)


def kill_supervisor(deployed: Deployed, target: str) -> None:
    """Nothing else is touched; whoever looks after it starts it again at once."""
    deployed.supervisor.kill()
    deployed.forget_up()
    deployed.up()
    deployed.wait_up()


def stop_process(deployed: Deployed, target: str) -> None:
    group = deployed.running(target).pid
    os.killpg(group, signal.SIGSTOP)
    time.sleep(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGCONT)


def _stop(processes: Sequence[psutil.Process]) -> None:
    send_all(list(processes), signal.SIGSTOP)
    time.sleep(STOP_SECONDS)
    send_all(list(processes), signal.SIGCONT)


def stop_jvm(deployed: Deployed, target: str) -> None:
    _stop(deployed.jvm(target))


def stop_worker(deployed: Deployed, target: str) -> None:
    _stop(deployed.workers(target))


def stop_supervisor(deployed: Deployed, target: str) -> None:
    _stop([deployed.supervisor])


def short_of_memory(deployed: Deployed, target: str) -> None:
    """The JVM may have no more memory than it has now."""
    for jvm in deployed.jvm(target):
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            resource.prlimit(jvm.pid, resource.RLIMIT_AS, (1 << 26, 1 << 26))


def broken_disk(error: str, files: str) -> Fault:
    processes, paths = FILES[files]

    def fail(deployed: Deployed, target: str) -> None:
        told = [deployed.nodes_of(process)[0] for process in processes]
        for node in told:
            deployed.control(node, "disk", {"error": error, "paths": paths})
        time.sleep(DISK_SECONDS)
        for node in told:
            # One that ended and started again has no fault any more.
            while not deployed.control(node, "disk", {}):
                time.sleep(0.2)

    return fail


def set_clocks(step_us: int) -> Fault:
    def step(deployed: Deployed, target: str) -> None:
        for process in ("entry-load", *REPLICAS):
            for node in deployed.nodes_of(process):
                deployed.control(node, "clock", {"step_us": step_us})
        time.sleep(DISK_SECONDS)

    return step


def restart_often(deployed: Deployed, target: str) -> None:
    """Everybody else's connections break, and may leave nothing behind."""
    names = ["entry-load", *(f"sink-{name}" for name in PROTECTIONS)]
    for number in range(RESTARTS):
        name = names[number % len(names)]
        before = deployed.running(name).pid
        os.killpg(before, signal.SIGKILL)

        def is_back(name: str = name, before: int = before) -> bool:
            process = deployed.process(name)
            return process is not None and process.pid != before

        deployed.until(f"{name} back", is_back, 60.0)
        time.sleep(0.2)


def fill_disk(deployed: Deployed, target: str) -> None:
    """For real: not a byte is left, then there is room again."""
    ballast = deployed.deployment.data / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        end = time.monotonic() + DISK_SECONDS
        while time.monotonic() < end:
            try:
                file.write(bytes(1 << 16))
            except OSError:
                time.sleep(0.05)  # what is freed meanwhile is taken, too
    ballast.unlink()


class Messages:
    """Says odd things to every node."""

    def __init__(self, count: int, seed: int) -> None:
        self.sent = 0
        self.timed_out = 0
        self._count = count
        self._seed = seed

    def __call__(self, deployed: Deployed, target: str) -> None:
        security = deployed.deployment.security.read()
        book = Addresses.read(deployed.deployment).book(security)
        nodes = [name for name in book if not name.startswith("watch-")]
        each = -(-self._count // len(nodes))
        fuzzes = [
            Fuzz(book[node], _callers(security, nodes), ["load", *PROTECTIONS], self._seed + number)
            for number, node in enumerate(nodes)
        ]

        def run(some: list[Fuzz]) -> None:
            for fuzz in some:
                fuzz.run(each)

        threads = [threading.Thread(target=run, args=(fuzzes[start::4],)) for start in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.sent += sum(sum(fuzz.outcomes.values()) for fuzz in fuzzes)
        self.timed_out += sum(fuzz.outcomes["timed out"] for fuzz in fuzzes)


def _callers(security: Security, nodes: list[str]) -> list[Caller]:
    """Whoever may produce or read, under names of others; and strangers.

    Not those who may replicate or operate: they are believed.
    """
    known = [
        Caller(name, Security(tokens={role: security.tokens[role]}), role)
        for role in (Role.PRODUCE, Role.READ)
        for name in (*nodes, "sensor")
    ]
    return [*known, Caller("stranger", Security()), Caller(nodes[0], Security(token="guessed"))]


AT_REPLICAS: dict[str, Fault] = {
    "kill-process": kill_process,
    "kill-jvm": kill_jvm,
    "kill-worker": kill_worker,
    "stop-process": stop_process,
    "stop-jvm": stop_jvm,
    "stop-worker": stop_worker,
    "memory-jvm": short_of_memory,
}
AT_ALL: dict[str, Fault] = {
    "kill-supervisor": kill_supervisor,
    "stop-supervisor": stop_supervisor,
    **{
        f"{error.lower()}-{files}": broken_disk(error, files)
        for files in FILES
        for error in ("EIO", "ENOSPC")
    },
    "clock-forward": set_clocks(MINUTE_US),
    "clock-back": set_clocks(-MINUTE_US),
    "restarts": restart_often,
    "full-tmpfs": fill_disk,
}
QUICK = ("kill-jvm", "stop-process", "enospc-output-logs", "messages", "full-tmpfs")


def strike(deployed: Deployed, kind: str, fault: Fault, target: str) -> Strike:
    """Make a fault; returns when it is over."""
    hit = frozenset(PROTECTIONS)
    if target in REPLICAS:
        deployed.wait_settled()
        hit = frozenset(deployed.protections_in(target))
    fault(deployed, target)
    return Strike(kind, target, hit)


def log_of(deployed: Deployed, process: str) -> Path:
    return deployed.deployment.data / "logs" / f"{process}.log"
