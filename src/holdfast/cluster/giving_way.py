"""A process that comes back gives way to those that do its work meanwhile.

To start takes all processors for seconds: Java loads its classes, Spark runs its first jobs, Python
workers import what they need, a state is unpacked, and jobs are run until they get no quicker. On a
small machine everybody else's results are late by it. Nobody waits for a replica that comes back
while another one is at work, so until it has its place its process runs at a lower priority. If
whoever does its work is gone, or if it takes long, it goes on like anybody else.

The priority must be one that can be given back. That of a process cannot, without privileges; but
Linux divides the processors among sessions first (sched_autogroup), and the share of a session can
be made smaller, and as large as before, by its owner. Each process of a deployment leads a session,
with its JVM and workers in it (``children``). Where processors are not divided so, as in containers
and services that have a share of their own, it is without effect.

The environment's HOLDFAST_GIVE_WAY says how far, as nice does: from 0, not at all, to 19.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.cluster.status import node_status
from holdfast.core.consistency import NodeState
from holdfast.deployment import Deployment
from holdfast.errors import HoldfastError, InputError

VARIABLE = "HOLDFAST_GIVE_WAY"
# A tenth of what others get: its own heartbeats must not be late by much.
NICE = 10
# It takes a few seconds where processors are free.
MOST_SECONDS = 20.0
GROUP = Path("/proc/self/autogroup")
_LOOK_SECONDS, _ASK_SECONDS = 0.1, 2.0
# Linux takes ten such orders a second from all users together.
_TRIES, _TRY_SECONDS = 50, 0.1
_AT_WORK = {each.value for each in NodeState} - {NodeState.RECOVERING.value}


def how_far() -> int:
    """What the environment says."""
    said = os.environ.get(VARIABLE, str(NICE))
    if not said.isdecimal() or int(said) > 19:
        raise InputError(f"{VARIABLE} must be a whole number from 0 to 19; it is {said!r}")
    return int(said)


def set_share(nice: int) -> bool:
    """Set what this session gets of the processors; False where that cannot be done."""
    if os.getsid(0) != os.getpid():
        return False  # somebody else's
    for _ in range(_TRIES):
        try:
            GROUP.write_bytes(b"%d" % nice)
        except BlockingIOError:
            time.sleep(_TRY_SECONDS)
        except OSError:
            return False
        else:
            return True
    return False


def stand_ins(deployment: Deployment, process: str) -> dict[str, list[str]]:
    """Of each node of a process, who may do its work elsewhere; empty if for one nobody does."""
    own = deployment.processes[process]
    fragments = {
        name: fragment.processes
        for fragment in deployment.fragments.values()
        if not fragment.merges  # it starts no Spark
        for name in fragment.processes
    }
    left = {*own, *deployment.gone}
    found = {node: [each for each in fragments.get(node, ()) if each not in left] for node in own}
    return found if all(found.values()) else {}


def are_at_work(said: Mapping[str, Mapping[str, Any]], needed: Iterable[Iterable[str]]) -> bool:
    """Whether of each of some groups of nodes at least one runs, by what they say."""

    def is_at_work(one: Mapping[str, Any]) -> bool:
        return one.get("state") in _AT_WORK and one.get("copy", "primary") == "primary"

    return all(any(is_at_work(said[name]) for name in names) for names in needed)


class GivingWay:
    """The priority of this process while it comes back."""

    def __init__(
        self,
        deployment: Deployment,
        process: str,
        has_place: Callable[[], bool],
        say: Callable[..., None],
    ) -> None:
        """``has_place``: whether all its nodes do what they are for. ``say`` is for the journal."""
        self._deployment = deployment
        self._nice = 0
        self._needed = list(stand_ins(deployment, process).values())
        self._has_place = has_place
        self._say = say
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-giving-way", daemon=True)

    def start(self) -> None:
        self._nice = how_far()
        if self._nice and self._needed:
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        if not self._others_work() or not set_share(self._nice):
            return
        began = time.monotonic()
        self._say("gives way", to=self._others)
        why = self._until(began)
        if not set_share(0):
            self._say("gives way for good", level="warning", problem="its share cannot be set")
            return
        self._say("gives way no more", after_s=round(time.monotonic() - began, 3), why=why)

    @property
    def _others(self) -> list[str]:
        return sorted({name for names in self._needed for name in names})

    def _others_work(self) -> bool:
        try:
            said = node_status(self._deployment, self._others)
        except (HoldfastError, OSError):
            return False  # nobody can be asked
        return are_at_work(said, self._needed)

    def _until(self, began: float) -> str:
        """Wait until it is to be like anybody else; why it is."""
        asked = began
        while not self._stopping.wait(_LOOK_SECONDS):
            now = time.monotonic()
            if self._has_place():
                return "it has its place"
            if now - began > MOST_SECONDS:
                return f"{MOST_SECONDS:g} s are over"
            if now - asked > _ASK_SECONDS:
                asked = now
                if not self._others_work():
                    return "nobody does its work"
        return "it stops"
