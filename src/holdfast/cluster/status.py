"""What the nodes of a deployment say of themselves."""

from __future__ import annotations

from typing import Any

from holdfast.deployment import Deployment
from holdfast.flight.peers import call, explain
from holdfast.plans.addresses import Addresses


def node_status(deployment: Deployment, nodes: list[str]) -> dict[str, dict[str, Any]]:
    """What each node says of itself, or why it says nothing."""
    security = deployment.security.read()
    book = Addresses.read(deployment).book(security)
    found = {}
    for name in nodes:
        try:
            found[name] = call(book[name], security, "holdfast", "status", timeout_s=1.0)
        except Exception as error:
            found[name] = {"name": name, "error": explain(error)}
    return found
