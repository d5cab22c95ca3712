"""What is done to a deployment from the page.

Replicas are added, moved and removed as by ``holdfast replica``; failures on purpose are those of
``holdfast chaos``.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from holdfast.cluster.chaos import check_chaos, cut, disturb, heal
from holdfast.cluster.disturbances import Disturbance
from holdfast.cluster.members import Changed, add_replica, move_replica, remove_replica
from holdfast.cluster.supervisor import send_signal
from holdfast.deployment import Deployment
from holdfast.errors import HoldfastError, InputError
from holdfast.web.clusters import SubmissionEye
from holdfast.web.history import History

_LONGEST_SECONDS = 3600.0
_REFUSED_SECONDS = 1.0
# Allowed where nothing is to fail on purpose.
_NO_FAILURES = ("add", "move", "remove", "collect")

# Does something; what it was, and what came of it at once.
Action = Callable[[Deployment, dict[str, Any]], tuple[str, str]]


class Controls:
    """Carries out what the page asks for, and writes it down."""

    def __init__(
        self,
        deployment: Callable[[], Deployment],
        history: History,
        is_submitted: Callable[[], bool] = lambda: False,
        eye: SubmissionEye | None = None,
    ) -> None:
        """
        is_submitted  whether a cluster runs it, and places its replicas itself.
        eye           by which that cluster is asked for something, if it is what is watched.
        """
        self._deployment = deployment
        self._is_submitted = is_submitted
        self._eye = eye
        self._history = history
        self._actions: Mapping[str, Action] = {
            "kill": lambda d, asked: _signalled(d, asked, signal.SIGKILL, "kill -9"),
            "kill-jvm": lambda d, asked: _signalled(d, asked, signal.SIGKILL, "kill -9", jvm=True),
            "pause": lambda d, asked: _signalled(d, asked, signal.SIGSTOP, "pause"),
            "resume": lambda d, asked: _signalled(d, asked, signal.SIGCONT, "resume"),
            "slow": self._slowed,
            "cut": _cut,
            "heal": _healed,
            "add": _added,
            "move": self._moved,
            "remove": _removed,
            "collect": self._collected,
        }
        # Where a cluster runs it, it is asked.
        self._in_cluster: Mapping[str, Action] = {
            "add": self._added_in_cluster,
            "move": self._moved_in_cluster,
            "remove": self._removed_in_cluster,
        }

    def carry_out(self, by: str, asked: dict[str, Any]) -> str:
        """Do it; what was done. HoldfastError if it cannot be."""
        name = str(asked.get("action"))
        if name not in self._actions:
            raise InputError(f"there is no control {name!r}; there are {sorted(self._actions)}")
        at = time.time()
        try:
            deployment = self._deployment()
            if name not in _NO_FAILURES:
                check_chaos(deployment)
            action = self._actions[name]
            if name in self._in_cluster and self._eye is not None:
                action = self._in_cluster[name]
            elif name in self._in_cluster and self._is_submitted():
                raise InputError(
                    f"a cluster runs {deployment.name}, and has its replicas added, moved and "
                    f"removed: watch one of its servers, holdfast web HOST:PORT"
                )
            text, said = action(deployment, asked)
        except HoldfastError as error:
            self._history.controlled(at, by, _wish(asked), str(error), True)
            raise
        self._history.controlled(at, by, text, said, False)
        return f"{text}: {said}"

    def _slowed(self, deployment: Deployment, asked: dict[str, Any]) -> tuple[str, str]:
        process = _text(asked, "process")
        seconds, share = _number(asked, "seconds", 10.0), _number(asked, "share", 0.1)
        if seconds > _LONGEST_SECONDS:
            raise InputError(f"seconds is at most {_LONGEST_SECONDS:g}; got {seconds:g}")
        disturbance = Disturbance(seconds, process, share)
        send_signal(deployment, process, signal.SIGCONT)  # says so if it does not run

        def slow() -> None:
            try:
                disturb(deployment, disturbance)
                self._history.happened(time.time(), process, "has its whole time again", "control")
            except HoldfastError as error:
                self._history.happened(time.time(), process, str(error), "error")

        threading.Thread(target=slow, name="holdfast-web-slow", daemon=True).start()
        return f"slow {process}", f"it has {share:.0%} of its time for {seconds:g} s"

    def _moved(self, deployment: Deployment, asked: dict[str, Any]) -> tuple[str, str]:
        """Begin it: the new one joins before the old one goes, which takes a while."""
        replica, place = _text(asked, "replica"), _text(asked, "place")
        moved: Future[str] = Future()

        def move() -> None:
            try:
                name, changed = move_replica(deployment.path, replica, place)
                moved.set_result(f"{name} has taken the place of {replica}{_unaware(changed)}")
            except BaseException as error:
                moved.set_exception(error)

        threading.Thread(target=move, name="holdfast-web-move", daemon=True).start()
        # What cannot be done at all is said at once.
        with contextlib.suppress(TimeoutError):
            return f"move {replica} to {place}", moved.result(_REFUSED_SECONDS)
        moved.add_done_callback(lambda done: self._tell_moved(replica, done))
        return f"move {replica} to {place}", "a new replica joins; when it is stable this one goes"

    def _added_in_cluster(self, deployment: Deployment, asked: dict[str, Any]) -> tuple[str, str]:
        fragment, place = _text(asked, "fragment"), str(asked.get("place") or "")
        eye = self._watched_cluster()
        found = eye.change("cluster-add", name=eye.name, fragment=fragment, server=place or None)
        return f"add a replica of {fragment}", f"{found['replica']} joins at {found['server']}"

    def _moved_in_cluster(self, deployment: Deployment, asked: dict[str, Any]) -> tuple[str, str]:
        replica, place = _text(asked, "replica"), _text(asked, "place")
        eye = self._watched_cluster()
        found = eye.change("cluster-move", name=eye.name, replica=replica, server=place)
        said = f"{found['replica']} joins at {found['server']}; when it is stable {replica} goes"
        return f"move {replica} to {place}", said

    def _removed_in_cluster(self, deployment: Deployment, asked: dict[str, Any]) -> tuple[str, str]:
        replica = _text(asked, "replica")
        eye = self._watched_cluster()
        found = eye.change("cluster-remove", name=eye.name, replica=replica)
        return f"remove {replica}", f"it ends; {', '.join(found['left'])} goes on"

    def _collected(self, deployment: Deployment, asked: dict[str, Any]) -> tuple[str, str]:
        cost, least = _number(asked, "cost", -1.0), int(_number(asked, "least", 1.0))
        eye = self._watched_cluster()
        found = eye.change("cluster-collect", name=eye.name, cost=cost, least=least)
        said = found["said"] or f"nothing may go; its streams cost {found['before']:.0f}"
        return f"collect down to a cost of {cost:g}", said

    def _watched_cluster(self) -> SubmissionEye:
        if self._eye is None:
            raise InputError(
                "replicas are collected by clusters: watch one of its servers, holdfast web "
                "HOST:PORT"
            )
        return self._eye

    def _tell_moved(self, replica: str, moved: Future[str]) -> None:
        error = moved.exception()
        text, level = (str(error), "error") if error else (moved.result(), "control")
        self._history.happened(time.time(), replica, text, level)


def _signalled(
    deployment: Deployment,
    asked: dict[str, Any],
    number: signal.Signals,
    what: str,
    *,
    jvm: bool = False,
) -> tuple[str, str]:
    process = _text(asked, "process")
    pid = send_signal(deployment, process, number, jvm=jvm)
    return f"{what} {f'the JVM of {process}' if jvm else process}", f"process {pid}"


def _added(deployment: Deployment, asked: dict[str, Any]) -> tuple[str, str]:
    fragment, place = _text(asked, "fragment"), _text(asked, "place")
    name, changed = add_replica(deployment.path, fragment, place)
    return f"add a replica of {fragment}", f"{name} joins at {place}{_unaware(changed)}"


def _removed(deployment: Deployment, asked: dict[str, Any]) -> tuple[str, str]:
    replica = _text(asked, "replica")
    changed = remove_replica(deployment.path, replica)
    return f"remove {replica}", f"it ends; epoch {changed.epoch}{_unaware(changed)}"


def _unaware(changed: Changed) -> str:
    names = ", ".join(changed.unaware)
    return f"; {names} will hear of it when they are back" if names else ""


def _cut(deployment: Deployment, asked: dict[str, Any]) -> tuple[str, str]:
    source, target = _text(asked, "source"), _text(asked, "target")
    one_way = bool(asked.get("one_way", False))
    cut(deployment, source, target, one_way=one_way)
    return f"cut {source} {'→' if one_way else '–'} {target}", "it stays cut until it is healed"


def _healed(deployment: Deployment, asked: dict[str, Any]) -> tuple[str, str]:
    if not asked.get("source"):
        what, silent = "every link", heal(deployment)
    else:
        source, target = _text(asked, "source"), _text(asked, "target")
        what, silent = f"{source} – {target}", heal(deployment, source, target)
    said = f"{', '.join(silent)} did not answer; heal again when they are up" if silent else "done"
    return f"heal {what}", said


def _wish(asked: dict[str, Any]) -> str:
    ends = (
        asked.get(name) for name in ("process", "replica", "fragment", "place", "source", "target")
    )
    return " ".join(str(each) for each in (asked.get("action"), *ends) if each)


def _text(asked: dict[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value:
        raise InputError(f"{name} must be a name; got {value!r}")
    return value


def _number(asked: dict[str, Any], name: str, default: float) -> float:
    value = asked.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} must be a number; got {value!r}")
    return float(value)
