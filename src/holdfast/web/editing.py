"""Changing a deployment from the page: its network's source, and its knobs.

1. ``check`` builds what was written, in a process of its own, and says what would change.
2. ``submit`` takes only what was checked: writes the files, stops the deployment and starts it
   again. If that fails, the files that were there before are put back and started.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.cluster.supervisor import supervisor_pid
from holdfast.core.settings import Policy, Protection, Reconcile
from holdfast.deployment import Deployment
from holdfast.durable import write_whole
from holdfast.errors import HoldfastError, InputError
from holdfast.plans.plan import read_plan
from holdfast.web.changes import changes_between
from holdfast.web.history import History
from holdfast.web.toml_edit import Value, set_value

_BUILD_SECONDS = 300.0
_STOP_SECONDS = 60.0
# The knobs of a fragment that a form changes, and what each may be; None: a number or a text.
FRAGMENT_KNOBS: dict[str, tuple[str, ...] | None] = {
    "protection": tuple(each.value for each in Protection),
    "replicas": None,
    "shards": None,
    "while_failed": tuple(each.value for each in Policy),
    "while_stabilizing": tuple(each.value for each in Policy),
    "reconcile": tuple(each.value for each in Reconcile),
}


@dataclass(frozen=True)
class Candidate:
    """What a deployment would be."""

    network: str
    toml: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.network}\0{self.toml}".encode()).hexdigest()


class Editor:
    """Changes one deployment, one change at a time."""

    says = "the files are written; the deployment stops and starts again"

    def __init__(
        self, deployment: Callable[[], Deployment], history: History, closed: str | None = None
    ) -> None:
        """``closed``: why this deployment cannot be changed here; None if it can."""
        self._deployment = deployment
        self._history = history
        self._closed = closed
        self._busy = threading.Lock()
        self._checked: str | None = None

    @property
    def is_open(self) -> bool:
        return self._closed is None

    def texts(self) -> dict[str, Any]:
        """The network's source and the knobs as they are now."""
        self._check_open()
        deployment = self._deployment()
        tables = tomllib.loads(deployment.path.read_text())
        knobs = knobs_of(deployment, tables)
        return {
            "network": deployment.network.read_text(),
            "file": deployment.network.name,
            "knobs": knobs,
        }

    def check(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Build it, and say what would change or what is wrong."""
        self._check_open()
        if not self._busy.acquire(blocking=False):
            raise InputError("another change is being built or submitted; try again in a moment")
        try:
            deployment = self._deployment()
            candidate = self._candidate(deployment, asked)
            found = self._built(deployment, candidate)
            if found["problem"] is not None:
                return {"problem": found["problem"], "changes": []}
            changes = self._changes(deployment, candidate, found)
            self._checked = candidate.digest
            return {"problem": None, "changes": changes, "digest": candidate.digest}
        finally:
            self._busy.release()

    def submit(self, by: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Start what was checked; it goes on in the background and is told of as events."""
        self._check_open()
        deployment = self._deployment()
        candidate = self._candidate(deployment, asked)
        if candidate.digest != self._checked or asked.get("digest") != self._checked:
            raise InputError("this is not what was checked last; look at what it changes first")
        if not self._busy.acquire(blocking=False):
            raise InputError("another change is being built or submitted; try again in a moment")
        said = self.says
        self._history.controlled(time.time(), by, "submit a change", said, False)
        thread = threading.Thread(
            target=self._start, args=(deployment, candidate), name="holdfast-web-submit"
        )
        thread.start()
        return {"said": said}

    # -- what differs where a cluster runs it (resubmitting.py) ---------------------------

    def _built(self, deployment: Deployment, candidate: Candidate) -> dict[str, Any]:
        return build(deployment, tomllib.loads(candidate.toml), candidate.network)

    def _changes(
        self, deployment: Deployment, candidate: Candidate, found: dict[str, Any]
    ) -> list[str]:
        tables = tomllib.loads(deployment.path.read_text()), tomllib.loads(candidate.toml)
        return changes_between(deployment, read_plan(deployment), tables, found)

    # -- carrying it out ----------------------------------------------------------------

    def _start(self, deployment: Deployment, candidate: Candidate) -> None:
        before = Candidate(deployment.network.read_text(), deployment.path.read_text())
        try:
            _stop(deployment)
            _write(deployment, candidate)
            problem = _up(deployment)
            if problem is None:
                self._tell("the change runs", "control")
                return
            self._tell(f"it did not start: {problem}. What was before is put back", "error")
            with contextlib.suppress(HoldfastError):
                _stop(deployment)
            _write(deployment, before)
            problem = _up(deployment)
            what = "what was before runs again" if problem is None else f"nor that: {problem}"
            self._tell(what, "control" if problem is None else "error")
        except (HoldfastError, OSError) as error:
            self._tell(f"the change could not be made: {error}", "error")
        finally:
            self._busy.release()

    def _tell(self, text: str, level: str) -> None:
        self._history.happened(time.time(), "", text, level)

    def _candidate(self, deployment: Deployment, asked: dict[str, Any]) -> Candidate:
        network = asked.get("network")
        if network is None:
            network = deployment.network.read_text()
        knobs = asked.get("knobs", {})
        if not isinstance(network, str) or not isinstance(knobs, dict):
            raise InputError("a change has a network, a text, and knobs, an object")
        text = deployment.path.read_text()
        for name, value in knobs.items():
            table, _, key = str(name).rpartition(".")
            self._check_knob(deployment, table, key, value)
            text = set_value(text, tuple(table.split(".", 1)), key, value)
        return Candidate(network, text)

    def _check_knob(self, deployment: Deployment, table: str, key: str, value: Value) -> None:
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise InputError(f"{table}.{key} is a text or a number; got {value!r}")
        fragment = table.removeprefix("fragments.")
        spec = deployment.fragments.get(fragment) if table.startswith("fragments.") else None
        is_of_fragment = spec is not None and spec.shard is None
        if (table, key) != ("timing", "delay") and not (is_of_fragment and key in FRAGMENT_KNOBS):
            raise InputError(f"{table}.{key} is no knob of this page")

    def _check_open(self) -> None:
        if self._closed is not None:
            raise InputError(self._closed)


def _knob(table: str, key: str, value: Any, choices: tuple[str, ...] | None) -> dict[str, Any]:
    return {"name": f"{table}.{key}", "table": table, "key": key, "value": value,
            "choices": choices}  # fmt: skip


def knobs_of(deployment: Deployment, tables: dict[str, Any]) -> list[dict[str, Any]]:
    """The knobs that forms change, with their values."""
    knobs: list[dict[str, Any]] = [
        _knob("timing", "delay", tables.get("timing", {}).get("delay", "3 seconds"), None)
    ]
    for name, spec in deployment.fragments.items():
        if spec.shard is not None:
            continue
        # The knobs of a fragment with shards are those of each shard.
        spec = deployment.fragments[spec.merges[0]] if spec.merges else spec
        table = tables.get("fragments", {}).get(name, {})
        replicas = table.get("replicas", len(spec.replicas))
        shards = table.get("shards", 1)
        shown = {
            "protection": spec.protection.value,
            "replicas": replicas if isinstance(replicas, int) else None,
            "shards": shards if isinstance(shards, int) else None,
            "while_failed": spec.while_failed.value,
            "while_stabilizing": spec.while_stabilizing.value,
            "reconcile": spec.reconcile.value,
        }
        knobs += [
            _knob(f"fragments.{name}", key, shown[key], choices)
            for key, choices in FRAGMENT_KNOBS.items()
            if shown[key] is not None
        ]
    return knobs


def build(
    deployment: Deployment, tables: dict[str, Any], network: str, anew: bool = False
) -> dict[str, Any]:
    """What it comes to, in a process of its own; ``anew``: what is kept does not matter."""
    asked = {
        "deployment": str(deployment.path),
        "tables": tables,
        "network": network,
        "anew": anew,
    }
    command = [sys.executable, "-m", "holdfast.web.building"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            out, error = process.communicate(json.dumps(asked).encode(), _BUILD_SECONDS)
        except subprocess.TimeoutExpired:
            raise InputError(f"building it took more than {_BUILD_SECONDS:g} s") from None
        finally:
            # Its JVM goes with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    lines = out.decode(errors="replace").strip().splitlines()
    try:
        found: dict[str, Any] = json.loads(lines[-1])
    except (ValueError, IndexError):
        last = error.decode(errors="replace").strip().splitlines()[-1:]
        raise InputError(f"it could not be built: {' '.join(last) or process.returncode}") from None
    return found


def _stop(deployment: Deployment) -> None:
    pid = supervisor_pid(deployment)
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while supervisor_pid(deployment) is not None:
        if time.monotonic() > deadline:
            raise HoldfastError(f"the supervisor, process {pid}, did not stop; nothing is changed")
        time.sleep(0.1)


def _write(deployment: Deployment, candidate: Candidate) -> None:
    write_whole(deployment.network, candidate.network.encode())
    write_whole(deployment.path, candidate.toml.encode())


def _up(deployment: Deployment) -> str | None:
    """Start it in the background; why it did not, if so."""
    command = [sys.executable, "-m", "holdfast.cli", "up", str(deployment.path), "--detach"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode == 0:
        return None
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"
