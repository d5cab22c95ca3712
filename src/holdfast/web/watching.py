"""Watches a deployment for the page: looks, journals, outputs and the hour before, in one place."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from holdfast.deployment import Deployment
from holdfast.errors import HoldfastError
from holdfast.plans.plan import Plan, plan_path, read_plan
from holdfast.web.clusters import ClusterEye
from holdfast.web.history import History
from holdfast.web.hub import Hub
from holdfast.web.journals import Journals
from holdfast.web.looking import Look, Looker, Looking
from holdfast.web.model import Places, fixed, live, troubles
from holdfast.web.outputs import OutputReader, OutputView
from holdfast.web.plane import Plane

# How often viewers are told what has changed.
_TELL_SECONDS = 0.2
_CONTROLS_SECONDS = 1.0


class Watch:
    """Everything the page shows."""

    def __init__(self, deployment: Deployment, hub: Hub, eye: ClusterEye | None = None) -> None:
        """``eye``: what looks at the cluster, if that is what is watched."""
        self.hub = hub
        self.history = History()
        self._chooses = eye is not None
        self._looker = Looker(deployment, eye)
        self._looking = Looking(self._looker, self.take_look)
        self._journals = Journals(self.history)
        self._views: dict[str, OutputView] = {}
        self._readers: dict[str, OutputReader] = {}
        self._plan: Plan | None = None
        self._planned_at = 0
        self._lock = threading.Lock()
        self._look: Look | None = None
        self._live: dict[str, dict[str, Any]] = {}
        self._fixed: dict[str, Any] = fixed(deployment, None)
        self._places = Places(deployment)
        self._plane = Plane()
        self._troubles: list[str] = []
        self._told: dict[str, Any] = {}
        self._counted: list[dict[str, Any]] = []
        self._counted_at = 0.0
        # Messages are numbered; whoever comes gets everything as it is, and the number of the
        # last message that is in it.
        self._telling = threading.Lock()
        self._number = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-web-tell", daemon=True)

    @property
    def deployment(self) -> Deployment:
        return self._looker.deployment

    @property
    def latest(self) -> Look | None:
        return self._look

    @property
    def is_submitted(self) -> bool:
        """Whether a cluster runs it."""
        look = self._look
        found = None if look is None else look.cluster
        return found is not None and self.deployment.name in found["submissions"]

    def start(self) -> None:
        self.take_look(self._looker.look())
        self._looking.start()
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._looking.close()
        self._thread.join(5.0)
        self._journals.close()
        for reader in self._readers.values():
            reader.close()

    def snapshot(self) -> dict[str, Any]:
        """Everything as it is."""
        with self._telling:
            self._tell()
            return {"number": self._number, **self._whole()}

    def _whole(self) -> dict[str, Any]:
        with self._lock:
            return {
                "now": time.time(),
                "fixed": self._fixed,
                "live": self._live,
                "general": self._general(),
                "history": self.history.whole(),
                "results": {name: [view.whole()] for name, view in self._views.items()},
                "controls": self.history.controls(time.time()),
            }

    # -- looking ------------------------------------------------------------------------

    def take_look(self, look: Look) -> None:
        """Show what was seen."""
        self._read_plan(look.deployment)
        before = self._look
        if look.problem is not None:
            # What was known last stays on the page; that it is old is said above it. What is to
            # be computed is known without anybody who runs.
            with self._lock:
                self._look = look
                self._fixed = fixed(look.deployment, self._plan)
            return
        if self._places.deployment is not look.deployment or self._places.plan is not self._plan:
            self._places = Places(look.deployment, self._plan)
        known = before if before is not None and before.problem is None else None
        found = live(look, known, self._places, self._plane)
        for name, node in found["nodes"].items():
            self.history.in_state(name, look.at, node["state"])
        with self._lock:
            self._look = look
            self._live = found
            self._fixed = fixed(look.deployment, self._plan)
            self._troubles = troubles(found["nodes"])

    def _read_plan(self, deployment: Deployment) -> None:
        """What the network is; another one after a change was submitted."""
        with contextlib.suppress(OSError, ValueError, KeyError, HoldfastError):
            changed_at = plan_path(deployment).stat().st_mtime_ns
            if changed_at == self._planned_at:
                return
            self._plan = read_plan(deployment)
            self._planned_at = changed_at
            self._follow_outputs(deployment, self._plan)

    def _follow_outputs(self, deployment: Deployment, plan: Plan) -> None:
        for name in set(self._readers) - set(plan.outputs):
            self._readers.pop(name).close()
            self._views.pop(name)
        for name in plan.outputs:
            if name not in self._readers:
                view = OutputView(name, self.history, lambda: self._troubles)
                self._views[name] = view
                self._readers[name] = OutputReader(deployment, view, lambda: self._look)

    # -- telling ------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.wait(_TELL_SECONDS):
            self._journals.follow(self._places)
            with self._telling:
                self._tell()

    def _tell(self) -> None:
        message = self._changes()
        if message:
            self._number += 1
            self.hub.publish({"number": self._number, "now": time.time(), **message})

    def _changes(self) -> dict[str, Any]:
        """What is not as the viewers were last told."""
        with self._lock:
            now: dict[str, Any] = {
                "fixed": self._fixed,
                "general": self._general(),
                "live": self._live,
            }
        now["controls"] = self._controls()
        told, self._told = self._told, now
        found: dict[str, Any] = {
            part: now[part]
            for part in ("fixed", "general", "controls")
            if now[part] != told.get(part)
        }
        changed = {
            part: difference(told.get("live", {}).get(part, {}), values)
            for part, values in now["live"].items()
        }
        if any(changed.values()):
            found["live"] = {part: each for part, each in changed.items() if each}
        fresh = self.history.fresh()
        if fresh:
            found["history"] = fresh
        results = {name: changes for name, view in self._views.items() if (changes := view.fresh())}
        if results:
            found["results"] = results
        return found

    def _controls(self) -> list[dict[str, Any]]:
        """What became of them is counted once a second."""
        now = time.monotonic()
        if now >= self._counted_at + _CONTROLS_SECONDS:
            self._counted_at = now
            self._counted = self.history.controls(time.time())
        return self._counted

    def _general(self) -> dict[str, Any]:
        look = self._look
        return {
            "supervisor": None if look is None else look.supervisor,
            "problem": None if look is None else look.problem,
            "cluster": None if look is None or look.cluster is None else _cluster(look),
            # Whether a viewer may choose among what the cluster runs.
            "chooses": self._chooses,
            "outputs": {name: reader.problem for name, reader in self._readers.items()},
        }


def _cluster(look: Look) -> dict[str, Any]:
    """Who decides in the cluster, and what it has to say of this submission."""
    found = look.cluster or {}
    names = {card["address"]: name for name, card in found["servers"].items()}
    mine = found["submissions"].get(look.deployment.name)
    return {
        "coordinator": names.get(found["coordinator"]),
        "unmanaged": found["unmanaged"],
        "submitted": mine is not None,
        "note": "" if mine is None else mine["note"],
        "cost": None if mine is None else mine.get("cost"),
        "submissions": sorted(str(each) for each in found["submissions"]),
    }


def difference(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """What changed; None for what is gone."""
    found: dict[str, Any] = {name: each for name, each in now.items() if before.get(name) != each}
    return found | dict.fromkeys(set(before) - set(now))
