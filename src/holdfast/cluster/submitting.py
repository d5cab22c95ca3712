"""``holdfast submit``: a deployment goes to a cluster, from whoever wrote it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.cluster.desired import Submission
from holdfast.cluster.starting import plan_network
from holdfast.deployment import load_deployment, read_tables
from holdfast.durable import make_private, write_whole
from holdfast.errors import HoldfastError, InputError
from holdfast.flight.peers import call, explain
from holdfast.plans.measured_file import adopt

_SUBMIT_SECONDS = 60.0


class NotSubmitted(HoldfastError):
    """The cluster has not taken a submission."""


def submit(
    deployment: str | Path, server: str, tell: Callable[[str], None]
) -> tuple[Path, dict[str, list[str]]]:
    """Hand a deployment to a cluster; the file by which it can be looked at, and the places.

    Submitting it again, after an answer was lost say, changes nothing.
    """
    found = load_deployment(deployment)
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"a server is host:port, got {server!r}")
    make_private(found.data)
    found = adopt(found)
    plan_network(found, tell, lambda: False)
    base = found.path.parent

    def relative(file: Path) -> str:
        return str(file.relative_to(base)) if file.is_relative_to(base) else file.name

    tables = read_tables(found.path)
    own = ("security", "data", "network", "servers", "files", "name")
    asked: dict[str, Any] = {
        "name": found.name,
        "tables": {key: value for key, value in tables.items() if key not in own},
        "network": relative(found.network),
        "files": {
            relative(file): base64.b64encode(file.read_bytes()).decode()
            for file in (found.network, *found.files)
        },
        "plan": (found.data / "plan.json").read_text(),
    }
    security = found.security.read()
    try:
        location = security.location(host, int(port))
        answer = call(location, security, "holdfast", "cluster-submit", asked, _SUBMIT_SECONDS)
    except HoldfastError:
        raise
    except Exception as error:
        raise NotSubmitted(f"server {server}: {explain(error)}") from None
    submission = Submission(**answer["submission"])
    directory = found.data / "submitted"
    path = submission.write(directory, found.security.table())
    # Nothing of it runs on this machine.
    write_whole(directory / "data" / "processes.json", b"{}")
    return path, submission.placed
