"""Changing from the page what a cluster runs: the network, the knobs, and the places of sources and
applications.

A cluster does not change a submission: what a source has logged is on its server's disk. So the
changed one is submitted beside it, under the name that follows (monitoring, monitoring-2, ...),
and when the cluster has taken it the old one is withdrawn. It begins anew: nothing that was logged
goes along, and that is said before anybody submits.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import shutil
from collections.abc import Callable
from typing import Any

from holdfast.cluster.desired import Submission
from holdfast.cluster.submitting import submit
from holdfast.deployment import Deployment
from holdfast.durable import make_private, write_whole
from holdfast.errors import HoldfastError, InputError
from holdfast.plans.plan import read_plan
from holdfast.web.changes import changes_between
from holdfast.web.clusters import SubmissionEye
from holdfast.web.editing import Candidate, Editor, build, knobs_of
from holdfast.web.history import History

# What the cluster fills in, and what is this machine's own.
_NOT_SUBMITTED = ("servers", "security", "data", "network", "name")


class Resubmitter(Editor):
    """Changes one submission, one change at a time."""

    says = "the cluster is asked to run it; then the one before is withdrawn"

    def __init__(
        self, deployment: Callable[[], Deployment], history: History, eye: SubmissionEye
    ) -> None:
        super().__init__(deployment, history)
        self._eye = eye

    def texts(self) -> dict[str, Any]:
        deployment = self._deployment()
        tables = _as_submitted(self._eye.submission)
        places = [
            {"name": f"{kind}.{name}.listen", "table": f"{kind}.{name}", "key": "listen",
             "value": table["listen"], "choices": self._servers(table["listen"])}
            for kind in ("sources", "clients")
            for name, table in tables.get(kind, {}).items()
            if "listen" in table
        ]  # fmt: skip
        cost = tables.get("collection", {}).get("network_cost")
        places.append({"name": "collection.network_cost", "table": "collection",
                       "key": "network_cost", "value": cost, "choices": None})  # fmt: skip
        return {
            "network": deployment.network.read_text(),
            "file": deployment.network.name,
            "knobs": [*knobs_of(deployment, tables), *places],
        }

    def _servers(self, at: str) -> list[str]:
        there = [] if self._eye.latest is None else list(self._eye.latest["servers"])
        return sorted({at, *there})

    def _candidate(self, deployment: Deployment, asked: dict[str, Any]) -> Candidate:
        network, knobs = asked.get("network") or deployment.network.read_text(), asked.get("knobs")
        if not isinstance(network, str) or not isinstance(knobs or {}, dict):
            raise InputError("a change has a network, a text, and knobs, an object")
        tables = _as_submitted(self._eye.submission)
        for name, value in (knobs or {}).items():
            table, _, key = str(name).rpartition(".")
            kind, _, of = table.partition(".")
            if key == "listen" and kind in ("sources", "clients") and of in tables.get(kind, {}):
                known = self._servers(str(tables[kind][of].get("listen", value)))
                if value not in known:
                    raise InputError(f"{name}: {value!r} is no server; there are {known}")
            elif name == "collection.network_cost" and value is None:
                tables.pop("collection", None)  # nothing is collected
                continue
            elif name == "collection.network_cost":
                value = _number(name, value)
            else:
                self._check_knob(deployment, table, key, value)
            place = tables
            for part in table.split(".", 1):
                place = place.setdefault(part, {})
            place[key] = value
        return Candidate(network, json.dumps(tables, sort_keys=True))

    def _built(self, deployment: Deployment, candidate: Candidate) -> dict[str, Any]:
        return build(deployment, self._whole(json.loads(candidate.toml)), candidate.network, True)

    def _changes(
        self, deployment: Deployment, candidate: Candidate, found: dict[str, Any]
    ) -> list[str]:
        before = self._whole(_as_submitted(self._eye.submission))
        after = self._whole(json.loads(candidate.toml))
        besides = (
            f"{next_name(self._eye.name)} is submitted and begins anew; then {self._eye.name} is "
            f"withdrawn, with what it has logged"
        )
        return changes_between(deployment, read_plan(deployment), (before, after), found, besides)

    def _whole(self, tables: dict[str, Any]) -> dict[str, Any]:
        """As a deployment on this machine has it, to be read."""
        kept = {key: self._eye.submission.tables[key] for key in ("servers", "name")}
        return copy.deepcopy({**tables, **kept, "network": self._eye.submission.network})

    def _start(self, deployment: Deployment, candidate: Candidate) -> None:
        before, after = self._eye.name, next_name(self._eye.name)
        directory = self._eye.directory / "next"
        try:
            shutil.rmtree(directory, ignore_errors=True)
            path = directory / "deployment.json"
            tables = {**json.loads(candidate.toml), "name": after, **self._eye.own}
            others = [each for each in self._eye.submission.files if each != tables["network"]]
            for name in others:
                make_private((directory / name).parent)
                content = base64.b64decode(self._eye.submission.files[name])
                write_whole(directory / name, content)
            make_private(directory)
            write_whole(directory / tables["network"], candidate.network.encode())
            write_whole(path, json.dumps({**tables, "files": others}).encode())
            submit(path, self._eye.address, lambda text: self._tell(text, "info"))
            self._eye.follow(after)
            self._eye.change("cluster-withdraw", name=before)
            self._tell("the change runs", "control")
        except (HoldfastError, OSError) as error:
            self._tell(f"the change could not be made: {error}", "error")
        finally:
            self._busy.release()


def next_name(name: str) -> str:
    """monitoring-2 after monitoring, monitoring-3 after that."""
    found = re.fullmatch(r"(.+)-(\d+)", name)
    return f"{name}-2" if found is None else f"{found.group(1)}-{int(found.group(2)) + 1}"


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} is a number; got {value!r}")
    return value


def _as_submitted(submission: Submission) -> dict[str, Any]:
    """The tables as somebody submitted them: replicas that were placed are a number again."""
    kept = {name: each for name, each in submission.tables.items() if name not in _NOT_SUBMITTED}
    found = copy.deepcopy(kept)
    for name, table in found.get("fragments", {}).items():
        if name in submission.placed and name not in submission.stays:
            table["replicas"] = len(submission.placed[name])
    return found
