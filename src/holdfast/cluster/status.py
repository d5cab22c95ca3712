"""What the nodes of a deployment say of themselves.

What hangs on a state is decided with the enums of ``core`` (``is_in``, ``copy_is``), never with a
word: one that is renamed there could else break a removal, a move or a restart in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyarrow import flight

from holdfast.core.consistency import NodeState
from holdfast.core.entry import EntryState
from holdfast.core.messages import CopyState
from holdfast.deployment import Deployment
from holdfast.flight.peers import call, explain
from holdfast.plans.addresses import Addresses

# A machine that is busy to its last core takes seconds for an answer.
ANSWER_SECONDS = 5.0
_AT_ONCE = 32


def node_status(
    deployment: Deployment, nodes: list[str], within_s: float = ANSWER_SECONDS
) -> dict[str, dict[str, Any]]:
    """What each node says of itself, or why it says nothing; all are asked at the same time."""
    if not nodes:
        return {}
    security = deployment.security.read()
    book = Addresses.read(deployment).book(security)

    def ask(name: str) -> dict[str, Any]:
        try:
            return call(book[name], security, "holdfast", "status", timeout_s=within_s)
        except Exception as error:
            return no_answer(name, error, within_s)

    with ThreadPoolExecutor(min(len(nodes), _AT_ONCE)) as pool:
        return dict(zip(nodes, pool.map(ask, nodes), strict=True))


def is_in(said: Mapping[str, Any], *states: NodeState | EntryState | CopyState) -> bool:
    """Whether a node says that it is in one of these states; one that says nothing is in none."""
    return said.get("state") in {one.value for one in states}


def is_stable(said: Mapping[str, Any]) -> bool:
    """Whether a replica says that it is as far as it may be, and right."""
    return is_in(said, NodeState.STABLE)


def copy_is(said: Mapping[str, Any], *states: CopyState) -> bool:
    """Whether a node says that it is one of several copies, in one of these states as such."""
    return said.get("copy") in {one.value for one in states}


def no_answer(name: str, error: Exception, waited_s: float) -> dict[str, Any]:
    """What is shown of a node that gave no status: one that listens and is slow is not gone."""
    if isinstance(error, flight.FlightTimedOutError):
        why = f"did not answer within {waited_s:g} s: its machine is busy, or it stands still"
        return {"name": name, "state": "slow", "error": why}
    return {"name": name, "error": explain(error)}
