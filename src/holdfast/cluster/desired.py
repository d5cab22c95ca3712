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

import msgspec

from holdfast.cluster.placing import NotPlaced
from holdfast.deployment import Deployment, load_deployment, membership_path
from holdfast.durable import make_private, write_whole
from holdfast.errors import HoldfastError

# The register is sent and written as a whole.
LARGEST_BYTES = 8 << 20
# Marks the directory of what was submitted to a cluster, on servers and where it was submitted.
SUBMITTED = "submitted"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class SentDeployment:
    """All that a server needs to run its part of a deployment.

    tables      of the deployment file.
    files       base64 of the network's file and others, by their paths.
    membership  what has changed since: replicas added and removed (plans/membership_file.py).
    """

    tables: dict[str, Any]
    network: str
    files: dict[str, str]
    plan: str
    addresses: str = ""
    membership: str | None = None

    def code(self) -> dict[str, bytes]:
        """The files, by their paths below the deployment's directory."""
        found = {checked_path(path): base64.b64decode(text) for path, text in self.files.items()}
        if checked_path(self.network) not in found:
            raise HoldfastError(f"the network's file {self.network!r} was not sent")
        return found

    def tables_here(self, security: dict[str, Any]) -> dict[str, Any]:
        """The tables of the deployment on a machine with this ``[security]``."""
        network = checked_path(self.network)
        return {**self.tables, "network": network, "data": "data", "security": security}

    def rest(self, tables: dict[str, Any]) -> dict[str, bytes]:
        """What lies beside the files then."""
        found = {
            "deployment.json": json.dumps(tables, indent=1),
            "data/plan.json": self.plan,
            "data/addresses.json": self.addresses,
            "data/membership.json": self.membership,
        }
        return {path: text.encode() for path, text in found.items() if text}


@dataclass(frozen=True)
class Submission(SentDeployment):
    """A deployment that was submitted, with the cluster's servers and the places filled in.

    placed      the servers of each fragment's replicas, by name.
    stays       fragments whose places were given, and are not changed.
    counts      of fragments that are to have another number of replicas than was submitted.
    moves       replicas that go when others are stable, and which.
    """

    placed: dict[str, list[str]] = field(default_factory=dict)
    stays: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    moves: dict[str, str] = field(default_factory=dict)

    def write(self, directory: Path, security: dict[str, Any]) -> Path:
        """Write it as a deployment below a directory; the path of its file."""
        files = self.code() | self.rest(self.tables_here(security))
        write_files(directory, files)
        for path in ("data/addresses.json", "data/membership.json"):
            if path not in files:
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

    @staticmethod
    def read(value: str) -> Desired:
        return _KNOWN.decode(value) if value else Desired()

    def text(self) -> str:
        """As the register holds it; raises HoldfastError if that is too much."""
        found = msgspec.json.encode(self, order="sorted").decode()
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


# Made known by one thread, at import: see flight/wire.py.
_KNOWN = msgspec.json.Decoder(Desired)


def write_files(directory: Path, files: Mapping[str, bytes]) -> bool:
    """Write files; whether any is new."""
    changed = False
    for path, data in files.items():
        file = directory / path
        if not file.is_file() or file.read_bytes() != data:
            make_private(file.parent)
            write_whole(file, data)
            changed = True
    return changed


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
