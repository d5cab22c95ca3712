"""A process lost for good, with the directories of its replicas; and a rolling restart.

The process is stopped, the directories of all its nodes are taken away, it is killed, and its
supervisor starts it anew on nothing. What its replicas need then comes from the others, which go
on with their results. *Rejoined* is a replica that is stable again, or a copy that holds the other
one's state, counted from when Spark was up.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.journals import entries
from benchmarks.replace_setting import (
    BYSTANDER,
    BYSTANDERS,
    PROCESSES,
    PROTECTIONS,
    X_SECONDS,
    Numbers,
)
from benchmarks.replace_watch import Reader
from benchmarks.standby_chain import now_us
from holdfast.cluster.rolling import restart_rolling
from holdfast.cluster.status import node_status
from holdfast.cluster.supervisor import Supervisor

PATIENCE_SECONDS = 180.0
Tell = Callable[[str], None]
Readers = Mapping[str, Reader]
Figures = dict[str, Any]


@dataclass(frozen=True)
class Late:
    """How late results were, in microseconds: in a calm stretch, and while a process joined."""

    usual: Numbers
    joining: Numbers

    def __str__(self) -> str:
        usual, joining = ([round(each / 1e3) for each in one] for one in (self.usual, self.joining))
        return f"{joining} ms, else {usual}"


@dataclass(frozen=True)
class Loss:
    """What one protection had of the loss of a process.

    bystander  the same query beside the same others, in a process that has nothing to do with it.
    """

    figures: Figures
    partner: Late
    bystander: Late


def until(what: str, holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {seconds:g} s")
        time.sleep(0.1)


def is_well(said: dict[str, Any]) -> bool:
    """A replica that is stable; or a copy that sleeps and holds the other one's state."""
    if said.get("copy") == "suspended":
        return bool(said["checkpoints"]["taken"])
    return said.get("state") == "stable" and said.get("copy", "primary") == "primary"


def wait_well(supervisor: Supervisor, processes: tuple[str, ...] = PROCESSES) -> None:
    nodes = [node for name in processes for node in supervisor.deployment.processes[name]]

    def are_well() -> bool:
        return all(map(is_well, node_status(supervisor.deployment, nodes).values()))

    until(f"all of {', '.join(processes)} well", are_well)


def running_in(supervisor: Supervisor, process: str) -> int:
    """How many of its copies run rather than sleep."""
    said = node_status(supervisor.deployment, list(supervisor.deployment.processes[process]))
    return sum(bool(one.get("awake", "copy" not in one)) for one in said.values())


def lose(supervisor: Supervisor, process: str) -> int:
    """Stop a process, take the directories of its nodes away, and kill it; when that was."""
    began = now_us()
    supervisor.signal(process, signal.SIGSTOP)
    for node in supervisor.deployment.processes[process]:
        directory = supervisor.deployment.data / "processes" / node
        shutil.move(directory, supervisor.deployment.data / f"lost-{began}-{node}")
    supervisor.kill(process)
    return began


def replace(
    supervisor: Supervisor, readers: Readers, process: str, usual_us: int, tell: Tell
) -> dict[str, Loss]:
    """Lose a process and see its replicas join; by protection. It was quiet since ``usual_us``."""
    lent_before = _beside_jobs(supervisor, process)
    lost_at = lose(supervisor, process)
    tell(f"{process} is lost, with all that it had")
    rejoined: dict[str, int] = {}
    nodes = {name: f"{name}-{PROCESSES.index(process) + 1}" for name in PROTECTIONS}

    def all_rejoined() -> bool:
        said = node_status(supervisor.deployment, list(nodes.values()), 2.0)
        for name, node in nodes.items():
            if name not in rejoined and is_well(said[node]):
                rejoined[name] = now_us()
        return len(rejoined) == len(nodes)

    until(f"{process} joined again", all_rejoined)
    up_at = _spark_up(supervisor, process, lost_at)
    tell(f"{process} is back, Spark was up after {(up_at - lost_at) / 1e6:.1f} s")
    # What waited for it, and the results after it.
    reached = now_us()
    until("results go on", lambda: all(one.stable_until > reached for one in readers.values()))
    found = {}
    lent = _beside_jobs(supervisor, process)
    for name in PROTECTIONS:
        partner, bystander = (
            Late(
                reader.lateness_us(usual_us, lost_at),
                reader.lateness_to_next_us(up_at, rejoined[name]),
            )
            for reader in (readers[name], readers[BYSTANDERS[name]])
        )
        figures = {
            "rejoin_s": round((rejoined[name] - up_at) / 1e6, 2),
            "lent_beside_jobs_ms": round((lent[name] - lent_before[name]) * 1e3),
            "gap_ms": round(readers[name].gap_us(lost_at, now_us()) / 1e3),
        }
        found[name] = Loss(figures, partner, bystander)
        tell(f"{name}: {figures}, late by {partner}")
    return found


def _beside_jobs(supervisor: Supervisor, process: str) -> dict[str, float]:
    """For how long jobs ran while the partners of a process made states ready for others."""
    other = next(each for each in PROCESSES if each != process)
    said = node_status(supervisor.deployment, list(supervisor.deployment.processes[other]))
    found = {}
    for node, one in said.items():
        lent = one.get("lent") or one.get("checkpoints") or {}
        found[node.rpartition("-")[0]] = float(lent.get("beside_jobs_s", 0.0))
    return found


def pause_us(late: Numbers, usual: Numbers) -> float:
    """How much later the latest of some results was than the latest of as many usual ones.

    Of several jobs at once on two cores each is early or late by chance, and the latest of several
    results is later than one of them: compared with a single usual one there would always be a
    pause. Of as many usual ones the latest is, at the median, this quantile of them.
    """
    if not len(late):
        return 0.0
    return max(0.0, float(late.max() - np.quantile(usual, 0.5 ** (1 / len(late)))))


def _spark_up(supervisor: Supervisor, process: str, since: int) -> int:
    for entry in entries(supervisor.deployment.data, since):
        if entry.node == process and entry.event == "Spark is up":
            return entry.at
    raise RuntimeError(f"{process} has not said that Spark is up")


def restart_all(supervisor: Supervisor, readers: Readers, tell: Tell) -> Figures:
    """Restart every process, one after the other; the longest time without a result.

    The bystanders' is left as it is: nobody stands in for them, and no figure is of them.
    """
    began = now_us()
    processes = [name for name in supervisor.deployment.processes if name != BYSTANDER]
    restart_rolling(supervisor.deployment.path, processes, wait_s=PATIENCE_SECONDS, tell=tell)
    ended = now_us()
    until("results go on", lambda: all(one.stable_until > ended for one in readers.values()))
    gaps = {name: readers[name].gap_us(began, now_us()) / 1e6 for name in PROTECTIONS}
    return {
        "rolling_restart_gap_s": round(max(gaps.values()), 2),
        "rolling_restart_gap_over_x": round(max(gaps.values()) / X_SECONDS, 3),
        "rolling_restart_gaps_s": {name: round(gap, 2) for name, gap in gaps.items()},
        "rolling_restart_s": round((ended - began) / 1e6, 1),
    }
