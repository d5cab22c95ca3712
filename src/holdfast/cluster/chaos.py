"""Failures on purpose, for tests, demos and the curious, in a deployment that runs.

    cut(deployment, "main-1", "entry-load")              # both directions
    cut(deployment, "main-1", "main-2", one_way=True)    # what main-1 sends is lost
    heal(deployment, "main-1", "main-2")
    heal(deployment)                                     # every link
    delay(deployment, "main-1", "main-2", Distance(80.0, jitter_ms=5.0))
    disturb(deployment, Disturbance(10.0, "main-1", share=0.1))

Nodes are told over Flight, as ``holdfast`` itself, a name that is never cut. A link is cut at
each of its ends that runs now; one is enough. Whoever is not a node, such as a producer, has no
end of its own: its name stands for the other end of a node's link.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import pyarrow.flight as flight

from holdfast.cluster.disturbances import Disturbance, carry_out
from holdfast.cluster.remote import RemoteServer
from holdfast.cluster.supervisor import SupervisorError, send_signal
from holdfast.deployment import Deployment
from holdfast.errors import HoldfastError
from holdfast.flight.distance import Distance
from holdfast.flight.peers import call, explain
from holdfast.nodes.links import NO_CHAOS
from holdfast.plans.addresses import Addresses


class ChaosError(HoldfastError):
    """A failure that cannot be made."""


def check_chaos(deployment: Deployment) -> None:
    """ChaosError unless the deployment may be made to fail on purpose."""
    if not deployment.chaos:
        raise ChaosError(f"{deployment.name}: {NO_CHAOS}")


def cut(deployment: Deployment, source: str, target: str, *, one_way: bool = False) -> None:
    """Cut the link between two nodes; one way: only what ``source`` sends to ``target``."""
    check_chaos(deployment)
    told = _tell_ends(deployment, "cut", source, target, one_way)
    if not told:
        raise ChaosError(
            f"neither {source!r} nor {target!r} is a running node of {deployment.name}; its "
            f"nodes are {sorted(deployment.endpoints)}"
        )


def heal(
    deployment: Deployment,
    source: str | None = None,
    target: str | None = None,
    *,
    one_way: bool = False,
) -> list[str]:
    """Heal the link between two nodes, every link of one, or every link there is.

    Gives the nodes that did not answer: if they cut the link themselves, it is still cut.
    """
    check_chaos(deployment)
    nodes = list(deployment.endpoints)
    if source is None:
        return [node for node in nodes if not _tell(deployment, node, {"heal": None})]
    if target is None:
        others = [node for node in nodes if node != source]
        silent = [node for node in others if not _tell(deployment, node, {"heal": [source]})]
        return silent if _tell(deployment, source, {"heal": None}) else [source, *silent]
    told = _tell_ends(deployment, "heal", source, target, one_way)
    return [node for node in (source, target) if node in nodes and node not in told]


def delay(
    deployment: Deployment, source: str, target: str, distance: Distance, *, one_way: bool = False
) -> list[str]:
    """Make the link between two nodes so long; one way: only for what ``source`` sends.

    Each end holds back what it sends, so both must be told. Gives those that did not answer.
    A client that is a program of its own is not told: what is sent to it takes longer.
    """
    check_chaos(deployment)
    nodes = deployment.endpoints
    for name in (source, target):
        if name not in nodes and name not in deployment.clients:
            raise ChaosError(f"there is no node {name!r}; there are {sorted(nodes)}")
    ends = [(source, target)] if one_way else [(source, target), (target, source)]
    return [
        end
        for end, other in ends
        if end in nodes and not _tell(deployment, end, {"delay": {other: asdict(distance)}})
    ]


def partition(deployment: Deployment, one: Iterable[str], other: Iterable[str]) -> None:
    """Cut every link between two groups of nodes."""
    others = list(other)
    for source in one:
        for target in others:
            cut(deployment, source, target)


def disturb(deployment: Deployment, disturbance: Disturbance, *, server: str | None = None) -> None:
    """Slow a process down, or load this machine or that of a server; returns when it is over."""
    check_chaos(deployment)
    process = disturbance.process
    if process is not None:
        if process not in deployment.processes:
            raise ChaosError(
                f"there is no process {process!r}; there are {sorted(deployment.processes)}"
            )
        server = deployment.server_of(process)
    elif server is not None and server not in deployment.servers:
        raise ChaosError(f"there is no server {server!r}; there are {sorted(deployment.servers)}")
    if server is not None:
        RemoteServer(deployment, server).disturb(asdict(disturbance))
        time.sleep(disturbance.seconds)
        return

    if process is not None:
        send_signal(deployment, process, signal.SIGCONT)  # says so if it does not run

    def to_process(number: signal.Signals) -> None:
        assert process is not None
        with contextlib.suppress(SupervisorError):  # it may be starting again
            send_signal(deployment, process, number)

    carry_out(disturbance, to_process)


def _tell_ends(
    deployment: Deployment, what: str, source: str, target: str, one_way: bool
) -> list[str]:
    """Tell both ends; those that were told."""
    ends = (
        (source, {what: [target], "incoming": not one_way, "outgoing": True}),
        (target, {what: [source], "incoming": True, "outgoing": not one_way}),
    )
    return [node for node, options in ends if _tell(deployment, node, options)]


def _tell(deployment: Deployment, node: str, options: dict[str, Any]) -> bool:
    if node not in deployment.endpoints:
        return False
    security = deployment.security.read()
    location = Addresses.read(deployment).book(security)[node]
    try:
        call(location, security, "holdfast", "links", options)
    except (flight.FlightUnavailableError, flight.FlightTimedOutError):
        return False
    except Exception as error:
        raise ChaosError(f"{node}: {explain(error)}") from None
    return True
