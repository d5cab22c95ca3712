"""``holdfast submit``: a deployment goes to a cluster, from whoever wrote it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.cluster.desired import SUBMITTED, Submission
from holdfast.cluster.remote import ask_server, sent_files
from holdfast.cluster.starting import plan_network
from holdfast.deployment import load_deployment, read_tables
from holdfast.durable import make_private, write_whole
from holdfast.plans.measured_file import adopt
from holdfast.ports import host_and_port


def submit(
    deployment: str | Path, server: str, tell: Callable[[str], None]
) -> tuple[Path, dict[str, list[str]]]:
    """Hand a deployment to a cluster; the file by which it can be looked at, and the places.

    Submitting it again, after an answer was lost say, changes nothing.
    """
    found = load_deployment(deployment)
    host_and_port(server)
    make_private(found.data)
    found = adopt(found)
    plan_network(found, tell, lambda: False)
    tables = read_tables(found.path)
    own = ("security", "data", "network", "servers", "files", "name")
    asked = {
        "name": found.name,
        "tables": {key: value for key, value in tables.items() if key not in own},
        **sent_files(found),
    }
    answer = ask_server(server, found.security.read(), "cluster-submit", asked)
    submission = Submission(**answer["submission"])
    directory = found.data / "submitted"
    path = submission.write(directory, found.security.table())
    # Who takes part is the cluster's to decide (members.py).
    write_whole(directory / SUBMITTED, server.encode())
    # Nothing of it runs on this machine.
    write_whole(directory / "data" / "processes.json", b"{}")
    return path, submission.placed


def forget(deployment: str | Path) -> None:
    """It was withdrawn: from now on it is no cluster's."""
    found = load_deployment(deployment)
    for directory in (found.path.parent, found.data / "submitted"):
        (directory / SUBMITTED).unlink(missing_ok=True)
