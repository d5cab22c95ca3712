"""The desired state of a cluster: which servers there are and what was submitted, as one document.

    {"servers": {"10.0.0.2:4700": {"name": "east", "zone": "boston", "life": "5f0c..."}},
     "submissions": {"monitoring": {
        "tables": {...}, "network": "network.py", "files": {"network.py": "..."},
        "plan": "...", "addresses": "...", "membership": null,
        "placed": {"main": ["east", "west"]}}}}

It is what the register holds (``core.register``); every server has it on disk. A submission is all
that a server needs to run its part: what ``holdfast up`` sends (``remote.py``), with the places
filled in.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from holdfast.cluster.placing import NotPlaced
from holdfast.deployment import Deployment, load_deployment, membership_path
from holdfast.durable import make_private, write_whole
from holdfast.errors import HoldfastError

# The register is sent and written as a whole.
LARGEST_BYTES = 8 << 20
# Marks the directory of a deployment that was submitted to the cluster.
SUBMITTED = "submitted"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Submission:
    """A deployment that was submitted, with the places of its replicas.

    tables      of the deployment file, with the cluster's servers and the places filled in.
    files       base64 of the network's file and others, by their paths.
    membership  what has changed since: replicas added and removed (plans/membership_file.py).
    placed      the servers of each fragment's replicas, by name.
    stays       fragments whose places were given, and are not changed.
    counts      of fragments that are to have another number of replicas than was submitted.
    moves       replicas that go when others are stable, and which.
    """

    tables: dict[str, Any]
    network: str
    files: dict[str, str]
    plan: str
    addresses: str = ""
    membership: str | None = None
    placed: dict[str, list[str]] = field(default_factory=dict)
    stays: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    moves: dict[str, str] = field(default_factory=dict)

    def options(self, name: str, processes: list[str]) -> dict[str, Any]:
        """What a server's ``deploy`` takes."""
        return {
            "deployment": name,
            "tables": self.tables,
            "network": self.network,
            "files": self.files,
            "plan": self.plan,
            "addresses": self.addresses,
            "membership": self.membership,
            "processes": processes,
            "restart": False,
        }

    def write(self, directory: Path, security: dict[str, Any]) -> Path:
        """Write it as a deployment below a directory; the path of its file."""
        files = {checked_path(path): text for path, text in self.files.items()}
        network = checked_path(self.network)
        make_private(directory / "data")
        for path, text in files.items():
            make_private((directory / path).parent)
            write_whole(directory / path, base64.b64decode(text))
        rest = {
            "data/plan.json": self.plan,
            "data/addresses.json": self.addresses,
            "data/membership.json": self.membership,
            "deployment.json": json.dumps(
                {**self.tables, "network": network, "data": "data", "security": security},
                indent=1,
            ),
        }
        for path, content in rest.items():
            if content:
                write_whole(directory / path, content.encode())
            else:
                (directory / path).unlink(missing_ok=True)
        return directory / "deployment.json"

    def changed(self, deployment: Deployment) -> Submission:
        """The same with the addresses and the membership that a staged deployment has now."""
        membership = membership_path(deployment.data)
        return replace(
            self,
            addresses=(deployment.data / "addresses.json").read_text(),
            membership=membership.read_text() if membership.exists() else None,
        )


@dataclass(frozen=True)
class Desired:
    """All of it."""

    servers: Mapping[str, dict[str, str]] = field(default_factory=dict)
    submissions: Mapping[str, Submission] = field(default_factory=dict)

    @classmethod
    def read(cls, value: str) -> Desired:
        if not value:
            return cls()
        found = json.loads(value)
        return cls(
            found["servers"],
            {name: Submission(**each) for name, each in found["submissions"].items()},
        )

    def text(self) -> str:
        """As the register holds it; raises HoldfastError if that is too much."""
        found = json.dumps(
            {
                "servers": dict(self.servers),
                "submissions": {name: vars(each) for name, each in self.submissions.items()},
            },
            sort_keys=True,
        )
        if len(found) > LARGEST_BYTES:
            raise HoldfastError(
                f"all submissions together are {len(found) >> 20} MiB; a cluster keeps at most "
                f"{LARGEST_BYTES >> 20}. Send code and small files only; data belongs to sources"
            )
        return found

    def names(self) -> dict[str, str]:
        """Server names and where they listen."""
        return {each["name"]: address for address, each in self.servers.items()}

    def submission(self, name: str) -> Submission:
        """What was submitted under a name; NotPlaced if nothing was."""
        if name not in self.submissions:
            known = ", ".join(sorted(self.submissions)) or "nothing"
            raise NotPlaced(f"{name!r} is not submitted; submitted are: {known}")
        return self.submissions[name]

    def with_submission(self, name: str, submission: Submission) -> Desired:
        return replace(self, submissions={**self.submissions, name: submission})

    def without_submission(self, name: str) -> Desired:
        left = {each: found for each, found in self.submissions.items() if each != name}
        return replace(self, submissions=left)

    def without_server(self, address: str) -> Desired:
        left = {each: found for each, found in self.servers.items() if each != address}
        return replace(self, servers=left)

    def with_server(self, address: str, name: str, zone: str, life: str) -> Desired:
        known = {"name": name, "zone": zone, "life": life}
        return replace(self, servers={**self.servers, address: known})


def staged(directory: Path, submission: Submission, security: dict[str, Any]) -> Deployment:
    """A submission as a deployment on this server's disk, to be looked at and changed."""
    return load_deployment(submission.write(directory, security))


def checked_name(name: object) -> str:
    """The name of a deployment, if it can be that of a directory of a server."""
    text = str(name)
    if not _NAME.fullmatch(text) or text == "cluster":
        raise HoldfastError(f"a deployment on servers needs a plain name, got {text!r}")
    return text


def checked_path(text: object) -> str:
    """A path below the deployment's directory that is none of the server's own."""
    path = PurePosixPath(str(text))
    own = path.parts[:1] in (("data",), ("deployment.json",), ("hosted.json",), (SUBMITTED,))
    if path.is_absolute() or ".." in path.parts or not path.parts or own:
        raise HoldfastError(f"the file {str(text)!r} has no place on a server; rename it")
    return str(path)
