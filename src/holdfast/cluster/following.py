"""Shards whose number follows the load (``shards = "auto"``): who looks, and has them changed.

The supervisor of a deployment asks the shards how busy they are, every two seconds, and rescales
where ``core.scaling`` says so. What has begun is in the membership file, so a supervisor that is
started again finishes it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from holdfast.cluster.members import MembershipError
from holdfast.cluster.rescaling import change_number
from holdfast.cluster.status import is_in, is_stable, node_status
from holdfast.core.messages import CopyState
from holdfast.core.scaling import Scaling, ScalingSettings
from holdfast.deployment import Deployment, load_deployment
from holdfast.errors import HoldfastError

_LOOK_SECONDS = 2.0
# New shards are waited for so long at a time: between, it may be told to stop.
_WAIT_SECONDS = 5.0

Tell = Callable[[str], None]


class Following:
    """Has the shards of a deployment follow what there is to do."""

    def __init__(self, deployment: Deployment, tell: Tell, look_s: float = _LOOK_SECONDS) -> None:
        self._path = deployment.path
        self._tell = tell
        self._look_s = look_s
        self._machines = {
            name: Scaling(ScalingSettings(*spec.between))
            for name, spec in deployment.fragments.items()
            if spec.between is not None
        }
        self._said: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-following", daemon=True)

    def start(self) -> None:
        if self._machines:
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2 * _WAIT_SECONDS)

    def _run(self) -> None:
        while not self._stopping.wait(self._look_s):
            for fragment, machine in self._machines.items():
                try:
                    self._look_at(fragment, machine)
                except (HoldfastError, OSError, ValueError) as error:
                    self._say(fragment, str(error))

    def _look_at(self, fragment: str, machine: Scaling) -> None:
        deployment = load_deployment(self._path)
        generations = deployment.fragments[fragment].generations
        newest = generations[-1]
        if len(generations) > 1:
            self._change(deployment, fragment, newest.shards)  # goes on with what has begun
            return
        nodes = [one for name in newest.names for one in deployment.fragments[name].processes]
        said = node_status(deployment, nodes)
        hosts = deployment.processes.values()
        load = load_of([said[one] for one in hosted if one in said] for hosted in hosts)
        now = time.monotonic_ns() // 1000
        wanted = machine.look(now, newest.shards, load)
        if wanted is not None:
            self._tell(f"{fragment}: {newest.shards} shards have {load:.2f} to do; {wanted} follow")
            self._change(deployment, fragment, wanted)
        elif machine.more_do_not_help:
            self._say(fragment, f"{newest.shards} shards have too much to do; more did not help")
        else:
            self._said.pop(fragment, None)

    def _change(self, deployment: Deployment, fragment: str, shards: int) -> None:
        try:
            change_number(deployment, fragment, shards, _WAIT_SECONDS, lambda text: None)
        except MembershipError as error:
            self._say(fragment, str(error))
        else:
            self._said.pop(fragment, None)
            self._tell(f"{fragment} has {shards} shards")

    def _say(self, fragment: str, text: str) -> None:
        if self._said.get(fragment) != text:
            self._tell(f"{fragment}: {text}")
        self._said[fragment] = text


def load_of(processes: Iterable[Iterable[Mapping[str, Any]]]) -> float | None:
    """What the busiest of some processes has to do, by what the replicas in each say of themselves;
    None if one of them says nothing, or is not well: what it had to do may come back, or is with
    the others.

    A copy that sleeps has nothing to do while the one it stands by for is well.
    """
    most = 0.0
    for replicas in processes:
        # The parts of a shard share a driver, and each says only what its own jobs take.
        together = 0.0
        for said in replicas:
            if is_in(said, CopyState.SUSPENDED):
                continue
            busy = said.get("busy")
            if not is_stable(said) or busy is None:
                return None
            together = min(1.0, together + busy)
            # Who is further behind than it may be has more to do than it has time.
            behind = said["behind_s"] > said["delay_s"]
            most = max(most, said["input_ratio"] if behind else 0.0)
        most = max(most, together)
    return most
