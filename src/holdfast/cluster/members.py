"""Who takes part in a running deployment: clients are retired, replicas added, removed and moved.

What is decided here is on disk before anybody is told (``plans/membership_file.py``). Processes of
this machine look at that file, servers are sent it, and everybody tells everybody else
(``core/membership.py``): one that cannot be reached now hears of it when it is back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.cluster.desired import SUBMITTED
from holdfast.cluster.remote import RemoteServer, ServerError
from holdfast.cluster.status import copy_is, is_stable, node_status
from holdfast.core.messages import CopyState
from holdfast.core.records import Membership
from holdfast.core.standby import RUNNING
from holdfast.deployment import (
    LOOPBACK,
    Deployment,
    FragmentSpec,
    add_replica_to,
    load_deployment,
    read_tables,
)
from holdfast.deployment_file import DeploymentReader
from holdfast.errors import HoldfastError
from holdfast.plans.addresses import Addresses, is_addressed
from holdfast.plans.membership_file import change_membership, read_membership

_LOOK_SECONDS = 0.1
# How long the other one of two copies may take to take over; a passive one starts Spark first.
RELIEVE_SECONDS = 60.0


class MembershipError(HoldfastError):
    """Who takes part cannot be changed like that."""


@dataclass(frozen=True)
class Changed:
    """What came of a change.

    epoch    its number.
    unaware  nodes that have not heard of it yet: they cannot be reached now, or are slow.
    started  whether the deployment was ever started from its directory; if not, nobody has heard
             of it, and it counts when it is.
    """

    epoch: int
    unaware: tuple[str, ...]
    started: bool = field(default=True, kw_only=True)


def retire_client(
    deployment: str | os.PathLike[str], client: str, *, wait_s: float = 10.0
) -> Changed:
    """Keep nothing for a client any more; if it comes back it is told so, and ends.

    What it has not acknowledged goes, unless somebody else needs it. Its name is not used again.
    """
    found = own_deployment(deployment)
    if client not in found.clients:
        known = ", ".join(sorted(set(found.clients) - found.gone)) or "none"
        raise MembershipError(
            f"{found.path.name} names no client {client!r}, so nothing is kept for one; "
            f"it names: {known}"
        )
    return _without(found, client, wait_s)


def remove_replica(
    deployment: str | os.PathLike[str], replica: str, *, force: bool = False, wait_s: float = 10.0
) -> Changed:
    """Take a replica out: nobody waits for it or reads from it, and it ends.

    Another replica of the fragment must be stable and have all that the removed one may be asked
    for, or the removal is refused; ``force`` removes it all the same. Of two copies of a passive or
    hybrid fragment the other one takes over first, and is alone until another is added.
    """
    found = own_deployment(deployment)
    fragment = _fragment_of(found, replica)
    others = [name for name in fragment.processes if name not in found.gone | {replica}]
    _check_removable(found, fragment, replica, others)
    if force:
        able = others
    elif fragment.standby is not None:
        _have_relieved(found, replica, others[0], RELIEVE_SECONDS)
        able = others
    else:
        check_started(found)
        able, reasons = able_among(found, replica, others)
        if not able:
            raise MembershipError(
                f"{replica} is not removed, because no other replica can take over all of its "
                f"work now: {'; '.join(reasons)}. Try again when one is stable, or use --force "
                f"(force=True), which may lose what only {replica} has"
            )
    return _without(found, replica, wait_s, able)


def add_replica(
    deployment: str | os.PathLike[str],
    fragment: str,
    place: str = LOOPBACK,
    *,
    wait_s: float = 10.0,
) -> tuple[str, Changed]:
    """Give a fragment one more replica, which joins; its name, and what came of it.

    A passive or hybrid fragment has two copies: it gets one where it has only one.

    ``place`` is where it runs, as ``replicas`` of the deployment file has it: a host of this
    machine, with or without a port, or a server. It is of use once it has taken the state of
    another replica and caught up: its status is stable then.
    """
    found = own_deployment(deployment)
    spec = found.fragments.get(fragment)
    if spec is None:
        known = ", ".join(sorted(found.fragments))
        raise MembershipError(f"there is no fragment {fragment!r}; there are {known}")
    there = [name for name in spec.processes if name not in found.gone]
    if spec.standby is not None and len(there) == 2:
        raise MembershipError(
            f"{fragment} is {spec.protection.value} and has its two copies, {there[0]} and "
            f"{there[1]}; more would do nothing. Move one (holdfast replica move), or remove one "
            f"first"
        )
    return _added(
        found, spec, place, wait_s, lambda known, name: known.with_another(name, there[0])
    )


def _added(
    found: Deployment,
    spec: FragmentSpec,
    place: str,
    wait_s: float,
    change: Callable[[Membership, str], Membership],
) -> tuple[str, Changed]:
    """Let a new replica take part; ``change`` says as what."""
    if spec.shard is not None or spec.merges:
        raise MembershipError(
            f"{spec.name} has shards: every shard has as many replicas as the deployment file "
            f"says; change replicas or shards there and start with a new data directory"
        )
    check_started(found)
    name = f"{spec.name}-{len(spec.processes) + 1}"
    # Where it listens is known before anybody hears of it.
    larger = with_replica(found, spec, place)
    Addresses.choose(larger, lambda server, *asked: RemoteServer(larger, server).ports(*asked))

    def add(known: Membership) -> Membership:
        if any(one == name for one, _ in known.added):
            raise MembershipError(f"somebody else has just added {name}; try again")
        return change(known, name)

    epoch = change_membership(found, add, {name: place}).epoch
    found = load_deployment(found.path)
    unaware = (*tell_servers(found), *wait_for_epoch(found, epoch, wait_s, besides=name))
    return name, Changed(epoch, unaware)


def move_replica(
    deployment: str | os.PathLike[str],
    replica: str,
    place: str,
    *,
    force: bool = False,
    wait_s: float = 300.0,
) -> tuple[str, Changed]:
    """Have another replica, at ``place``, take the place of one; its name.

    It is added and joins; once it is stable, the other one is removed. If that is not so in time
    both stay, and ``MembershipError`` says what the new one waits for. Of a passive or hybrid
    fragment, whose copies are two, the other copy takes over first; then the new one takes the
    place, and it is waited for until it holds what the fragment would go on from.
    """
    found = own_deployment(deployment)
    fragment = _fragment_of(found, replica)
    if replica in found.gone:
        raise MembershipError(f"{replica} is gone already")
    if fragment.standby is not None:
        return _move_copy(found, fragment, replica, place, force, wait_s)
    name, _ = add_replica(deployment, fragment.name, place)
    why = _wait_for(found, name, wait_s, is_stable)
    if why is not None:
        raise MembershipError(
            f"{name} at {place} is not stable after {wait_s:g} s: {why}. {replica} stays. "
            f"Remove it yourself when {name} is stable, or remove {name}"
        )
    return name, remove_replica(deployment, replica, force=force)


def _wait_for(
    deployment: Deployment, name: str, wait_s: float, is_well: Callable[[dict[str, Any]], bool]
) -> str | None:
    """Wait for what a node says of itself; what it waits for itself, if that is not so in time."""
    deadline = time.monotonic() + wait_s
    while not is_well(said := node_status(load_deployment(deployment.path), [name])[name]):
        if time.monotonic() > deadline:
            return why_not_yet(said)
        time.sleep(_LOOK_SECONDS)
    return None


def why_not_yet(said: dict[str, Any]) -> str:
    """What a node waits for, by what it says."""
    return str(said.get("why") or said.get("error") or f"it is {said.get('state')}")


def _move_copy(
    found: Deployment, fragment: FragmentSpec, copy: str, place: str, force: bool, wait_s: float
) -> tuple[str, Changed]:
    """Have a new copy take the place of one of two."""
    others = [name for name in fragment.processes if name not in found.gone | {copy}]
    _check_removable(found, fragment, copy, others)
    deadline = time.monotonic() + wait_s
    if not force:
        _have_relieved(found, copy, others[0], wait_s)
    name, changed = _added(
        found,
        fragment,
        place,
        min(10.0, wait_s),
        lambda known, name: _checked(known, copy, others).with_in_place_of(name, others[0], copy),
    )
    left_s = deadline - time.monotonic()
    holds = (CopyState.SUSPENDED, *RUNNING)
    why = _wait_for(found, name, left_s, lambda said: copy_is(said, *holds))
    if why is not None:
        raise MembershipError(
            f"{name} at {place} has the place of {copy}, and holds nothing after {wait_s:g} s: "
            f"{why}. {others[0]} is alone until it does"
        )
    return name, changed


def _have_relieved(deployment: Deployment, copy: str, other: str, wait_s: float) -> None:
    why = relieve(deployment, copy, [other], wait_s)
    if why is not None:
        raise MembershipError(
            f"{copy} stays, because {why}. Try again when it is well, or use --force (force=True), "
            f"which may lose what only {copy} has"
        )


def relieve(deployment: Deployment, copy: str, others: Sequence[str], wait_s: float) -> str | None:
    """Have another copy take over, if none runs already; why that is not so in time.

    The first goes on until the other one has caught up. Where it was for nothing, it stays.
    """
    check_started(deployment)
    deadline = time.monotonic() + wait_s
    asked = False
    while True:
        said = node_status(deployment, [copy, *others])
        runs = any(copy_is(said[one], CopyState.PRIMARY) and is_stable(said[one]) for one in others)
        if runs and not said[copy].get("awake"):
            return None
        if not asked:
            change_membership(deployment, lambda known: known.without_soon(copy))
            tell_servers(load_deployment(deployment.path))
            asked = True
        if time.monotonic() > deadline:
            let_stay(deployment, copy)
            how = [
                f"{one} is {said[one].get('error') or said[one].get('copy')}, "
                f"{said[one].get('state')}"
                for one in others
            ]
            return (
                f"{' or '.join(others)} has not taken over from it after {wait_s:g} s: "
                f"{'; '.join(how)}"
            )
        time.sleep(_LOOK_SECONDS)


def let_stay(deployment: Deployment, copy: str) -> None:
    """A copy that was relieved does not go after all, and may be the primary again."""
    if read_membership(deployment.data).leaves_since(copy):
        change_membership(deployment, lambda known: known.staying(copy))
        tell_servers(load_deployment(deployment.path))


def with_replica(deployment: Deployment, spec: FragmentSpec, place: str) -> Deployment:
    """The deployment as it will be, if it can be that."""
    tables = read_tables(deployment.path)
    add_replica_to(tables["fragments"][spec.name], f"{spec.name}-{len(spec.processes) + 1}", place)
    return replace(DeploymentReader(deployment.path).deployment(tables), gone=deployment.gone)


def _fragment_of(deployment: Deployment, replica: str) -> FragmentSpec:
    fragment = deployment.fragment_of(replica)
    if fragment is not None:
        return fragment
    known = [name for each in deployment.fragments.values() for name in each.processes]
    left = ", ".join(name for name in known if name not in deployment.gone)
    raise MembershipError(f"there is no replica {replica!r}; there are {left}")


def _check_removable(
    deployment: Deployment, fragment: FragmentSpec, replica: str, others: list[str]
) -> None:
    if fragment.standby is not None and fragment.shard is not None:
        raise MembershipError(
            f"{replica} is a copy of a shard: every shard has as many copies as the deployment "
            f"file says. If its machine is lost, a spare server takes its place"
        )
    if fragment.merges and replica not in deployment.gone:
        raise MembershipError(
            f"{replica} merges the shards of {fragment.name}: there are as many as each shard has "
            f"replicas, and they change with the shards only. Start with another protection in "
            f"{deployment.path.name} and a new data directory; if its machine is lost, a spare "
            f"server takes its place"
        )
    if not others and replica not in deployment.gone:
        raise MembershipError(f"{replica} is the only replica of {fragment.name}: nobody else has")
    shared = next((each for each in deployment.processes.values() if replica in each), ())
    if len(shared) > 1:
        beside = ", ".join(name for name in shared if name != replica)
        raise MembershipError(
            f"{replica} shares its process with {beside}, which would end with it. Give each a "
            f"process of its own (colocate in the deployment file) and try again"
        )


def check_started(deployment: Deployment) -> None:
    if not is_addressed(deployment):
        raise MembershipError(f"{deployment.name} was never started; change its file instead")


def able_among(
    deployment: Deployment, replica: str, others: list[str]
) -> tuple[list[str], list[str]]:
    """Those that have all that the one to be removed may be asked for; why others have not."""
    said = node_status(deployment, [replica, *others])
    kept = said[replica].get("trimmed_below")
    able, reasons = [], []
    for name in others:
        found = said[name]
        if "error" in found:
            reasons.append(f"{name} does not answer ({found['error']})")
        elif not is_stable(found):
            reasons.append(f"{name} is {found.get('state')}")
        elif found.get("incarnation", 0) and not has_all(found["trimmed_below"], kept):
            reasons.append(f"{name} has joined later and may lack older tuples that {replica} has")
        else:
            able.append(name)
    return able, reasons


def has_all(first_ids: dict[str, int], kept: dict[str, int] | None) -> bool:
    return kept is not None and all(first_ids[name] <= first for name, first in kept.items())


def own_deployment(path: str | os.PathLike[str]) -> Deployment:
    """A deployment about which the one who asks decides; one that a cluster runs is refused.

    Two who decide would number their changes alike, and nodes would obey whichever they heard of.
    """
    found = load_deployment(path)
    mark = submitted_mark(found)
    if mark is not None:
        raise MembershipError(
            f"{found.name} was submitted to a cluster ({mark.read_text()}), which decides who "
            f"takes part: use holdfast replicas add, move or remove, or holdfast client retire, "
            f"each with --to HOST:PORT of any of its servers. The two copies of a passive or "
            f"hybrid fragment stay where they are there. If it runs there no longer, remove "
            f"{mark.parent}"
        )
    return found


def submitted_mark(deployment: Deployment) -> Path | None:
    """What says that a cluster runs a deployment, and which; None if none does."""
    marks = (deployment.path.parent / SUBMITTED, deployment.data / SUBMITTED / SUBMITTED)
    return next((mark for mark in marks if mark.exists()), None)


def _without(deployment: Deployment, name: str, wait_s: float, able: Sequence[str] = ()) -> Changed:
    """``able``: of whom one must be left, if it is a replica that goes."""
    epoch = change_membership(
        deployment, lambda known: _checked(known, name, able).without(name)
    ).epoch
    deployment = load_deployment(deployment.path)
    silent = tell_servers(deployment)
    unaware = (*silent, *wait_for_epoch(deployment, epoch, wait_s))
    return Changed(epoch, unaware, started=is_addressed(deployment))


def _checked(known: Membership, name: str, able: Sequence[str]) -> Membership:
    """The membership, if ``name`` may go by now: somebody else may have decided meanwhile."""
    if known.gone_since(name) is not None:
        raise MembershipError(f"{name} is gone already")
    if able and all(known.gone_since(other) is not None for other in able):
        raise MembershipError(
            f"{name} stays: {' and '.join(able)}, which would have been left, has just been "
            f"removed by somebody else. Try again"
        )
    return known


def tell_servers(deployment: Deployment) -> list[str]:
    """Send servers what their processes look at; those that did not take it."""
    silent = []
    for server in deployment.servers:
        if deployment.hosted_by(server):
            try:
                RemoteServer(deployment, server).deploy(restart=False)
            except (ServerError, OSError):
                silent.append(server)
    return silent


def wait_for_epoch(
    deployment: Deployment, epoch: int, wait_s: float, besides: str = ""
) -> tuple[str, ...]:
    """Those entry points and replicas that do not obey the epoch in time."""
    if not is_addressed(deployment):
        return ()  # it was never started; who starts later reads the file
    others = {*deployment.clients, besides}
    waiting = [name for name in deployment.endpoints if name not in others]
    deadline = time.monotonic() + wait_s
    while True:
        said = node_status(deployment, waiting)
        waiting = [name for name in waiting if said[name].get("epoch", -1) < epoch]
        if not waiting or time.monotonic() > deadline:
            return tuple(waiting)
        time.sleep(_LOOK_SECONDS)
