"""``holdfast rescale``: another number of shards for a fragment of a running deployment.

A new generation of shards, and of what merges them, is added beside the one that runs, and takes
over from it (``core/succession.py``). Both compute the same, so whoever reads the results changes
from one to the other as between replicas. When those that merge the new shards are stable and have
all that somebody may ask the old ones for, the old generation is removed. What was decided is on
disk before anybody is told, and a command that was interrupted goes on where it was. Until then it
can be called off (``calling_off``).
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from itertools import cycle
from typing import Any

from holdfast.cluster.calling_off import call_off, check_not_called_off, is_call_off
from holdfast.cluster.generations import (
    LOOK_SECONDS,
    Rescaled,
    Status,
    Tell,
    given_number,
    merging_of,
    remove_generation,
    shards_of,
    waits,
)
from holdfast.cluster.members import (
    MembershipError,
    check_started,
    has_all,
    tell_servers,
)
from holdfast.cluster.remote import RemoteServer
from holdfast.cluster.status import copy_is, is_stable, node_status
from holdfast.core.messages import CopyState
from holdfast.core.records import Membership
from holdfast.core.settings import Delivery
from holdfast.deployment import RESCALED, Deployment, FragmentSpec, load_deployment, read_tables
from holdfast.deployment_file import DeploymentReader
from holdfast.deployment_shards import only_server_of
from holdfast.plans.addresses import Addresses
from holdfast.plans.membership_file import change_membership, read_membership
from holdfast.plans.plan import read_plan
from holdfast.plans.topology import Topology
from holdfast.slots import SLOTS

_LACK_TUPLES = "the old ones have tuples that they lack"


def rescale(
    deployment: str | os.PathLike[str],
    fragment: str,
    shards: int,
    *,
    wait_s: float = 300.0,
    tell: Tell | None = None,
) -> Rescaled:
    """Give a fragment of a running deployment another number of shards; results go on meanwhile.

    New shards start and take over; then the old ones end. If that is not so in time both stay, and
    ``MembershipError`` says what is waited for; called again, it goes on. Called with the number of
    the old ones, it calls that off: the new ones end.
    """
    found = load_deployment(deployment)
    spec = found.fragments.get(fragment)
    if spec is not None and spec.between is not None and not is_call_off(spec, shards):
        least, most = spec.between
        raise MembershipError(
            f"the shards of {fragment} follow the load, from {least} to {most}; change "
            f"shards_between in {found.path.name}, or write a number there"
        )
    return change_number(found, fragment, shards, wait_s, tell or (lambda text: None))


def change_number(
    deployment: Deployment, fragment: str, shards: int, wait_s: float, tell: Tell
) -> Rescaled:
    """The same for whoever decides, also where the number follows the load."""
    spec = _checked(deployment, fragment, shards)
    if is_call_off(spec, shards):
        return call_off(deployment, fragment, wait_s, tell)
    found = deployment
    if len(spec.generations) == 1:
        _begin(found, spec, shards)
        found = load_deployment(deployment.path)
    # Also those that could not be reached when it began, and it is run again.
    _tell_servers(found, tell)
    generation = found.fragments[fragment].generations[-1].number
    tell(f"{shards} new shards of {fragment} start beside those that run")
    for name in found.fragments[fragment].generations[-1].names:
        if (server := only_server_of(found, name)) is not None:
            tell(f"all copies of {name} are at {server}, to be lost together")
    if found.fragments[fragment].delivery is Delivery.AT_MOST_ONCE:
        tell("at most once nothing is handed over: what open windows have is lost")
    _wait_until_taken_over(found, fragment, wait_s, tell)
    return _finish(found, fragment, shards, generation)


def _checked(deployment: Deployment, fragment: str, shards: int) -> FragmentSpec:
    """The fragment, if it can have so many shards."""
    spec = deployment.fragments.get(fragment)
    if spec is None or not spec.merges:
        known = ", ".join(name for name, one in deployment.fragments.items() if one.merges)
        raise MembershipError(
            f"{fragment!r} is no fragment with shards; with shards are: {known or 'none'}. Give "
            f"it shards in the deployment file, and a new data directory"
        )
    if not 1 <= shards <= SLOTS:
        raise MembershipError(f"from 1 to {SLOTS} shards, as many as there are slots; got {shards}")
    check_started(deployment)
    counts = [one.shards for one in spec.generations]
    if len(counts) > 1 and shards not in counts:
        command = f"holdfast rescale {deployment.path.name} {fragment}"
        raise MembershipError(
            f"{fragment} is being rescaled from {counts[0]} to {counts[1]} shards; let that end "
            f"first: {command} {counts[1]}; or call it off: {command} {counts[0]}"
        )
    if counts == [shards]:
        raise MembershipError(f"{fragment} has {shards} shards already")
    return spec


def _begin(deployment: Deployment, spec: FragmentSpec, shards: int) -> None:
    """Add the new generation."""
    tables = read_tables(deployment.path)
    now, number = spec.generations[-1], spec.last_generation + 1
    about = {
        "given": given_number(deployment, spec.name),
        "generations": [[now.number, now.shards], [number, shards]],
    }
    tables["fragments"][spec.name][RESCALED] = about
    larger = replace(DeploymentReader(deployment.path).deployment(tables), gone=deployment.gone)
    # Whatever does not fit is said before anything changes.
    topology = Topology(larger, read_plan(deployment))
    # Where they listen is known before anybody hears of them.
    Addresses.choose(larger, lambda server, *asked: RemoteServer(larger, server).ports(*asked))
    old, new = larger.fragments[spec.name].generations
    merging = larger.fragments[spec.name].processes[-spec.merging :]
    likes = [one for one in spec.processes if one not in deployment.gone]

    def add(known: Membership) -> Membership:
        taking = [
            (process, like)
            for name in new.names
            for process in larger.fragments[name].processes
            for before in topology.taken_from(name, old.names)
            for like in larger.fragments[before].processes
            if like not in deployment.gone
        ]
        taking += [(process, like) for process in merging for like in likes]
        if any(one == merging[0] for one, _ in known.added):
            raise MembershipError(f"somebody else is just rescaling {spec.name}; try again")
        # Earlier versions let go of some of those that merge.
        return known.with_shards(taking, zip(merging, cycle(likes), strict=False))

    change_membership(deployment, add, shards={spec.name: about})


def _wait_until_taken_over(
    deployment: Deployment, fragment: str, wait_s: float, tell: Tell
) -> None:
    """Return when the new generation does all the work of the old one, and who has to do with
    them knows it: at the same look, as a new shard may have been lost since the one before.

    Whoever is not concerned may be away: it hears of the change when it is back.
    """
    new = merging_of(deployment, fragment, newest=True)
    before = merging_of(deployment, fragment, newest=False)
    old = tuple(name for name in before if name not in deployment.gone)
    shards = [name for names in shards_of(deployment, fragment, newest=True) for name in names]
    concerned = _concerned(deployment, fragment)
    epoch = read_membership(deployment.data).epoch
    lossy = deployment.fragments[fragment].delivery is Delivery.AT_MOST_ONCE
    deadline = time.monotonic() + wait_s
    said: dict[str, str] = {}
    while True:
        check_not_called_off(deployment, fragment, read_membership(deployment.data))
        found = node_status(deployment, concerned)
        lacking = [name for name in (*shards, *new) if not _has_taken_over(found[name], lossy)]
        for name in (*shards, *new):
            state = str(found[name].get("state", "starting"))
            if said.get(name) != state:
                said[name] = state
                tell(f"{name}: {state}")
        # Who has not taken over may not say yet what it has.
        whole = lossy or (not lacking and _has_old_tuples(found, new, old))
        unaware = [name for name in concerned if found[name].get("epoch", -1) < epoch]
        if whole and not lacking and not unaware:
            return
        if time.monotonic() > deadline:
            why = waits(found, lacking) or ("" if whole else _LACK_TUPLES) or _not_heard(unaware)
            raise MembershipError(
                f"new shards of {fragment} have not taken over after {wait_s:g} s: {why}. Both "
                f"stay; run it again to go on"
            )
        time.sleep(LOOK_SECONDS)


def _concerned(deployment: Deployment, fragment: str) -> list[str]:
    """Both generations of a fragment, and who provides what they read, or reads it from them.

    Clients are not waited for: they may be away for days.
    """
    topology = Topology(deployment, read_plan(deployment))
    spec = deployment.fragments[fragment]
    replicas = [one for name in spec.merges for one in deployment.fragments[name].processes]
    own = [one for one in (*replicas, *spec.processes) if one not in deployment.gone]
    found = list(own)
    for plan in map(topology.fragment_plan, own):
        found += [one for stream in plan.inputs for one in topology.producers[stream]]
        found += [one for each in plan.outputs for one in topology.consumers[each.stream]]
    return [one for one in dict.fromkeys(found) if one not in deployment.clients]


def _not_heard(unaware: list[str]) -> str:
    has = "has" if len(unaware) == 1 else "have"
    return f"{', '.join(unaware)} {has} not heard of the change yet"


def _has_taken_over(said: dict[str, Any], lossy: bool) -> bool:
    """Whether a new node does its work, or holds what it needs to stand in for who does.

    lossy  it needs nothing for that.
    """
    held = copy_is(said, CopyState.SUSPENDED)
    return is_stable(said) or (held and (lossy or said.get("boundary", 0) > 0))


def _has_old_tuples(found: Status, new: tuple[str, ...], old: tuple[str, ...]) -> bool:
    """Whether every new one has what a client that was away may still ask an old one for."""
    kept = [found[name]["trimmed_below"] for name in old if "trimmed_below" in found[name]]
    # One that has joined may have less than another one has.
    has = [has_all(found[name]["trimmed_below"], one) for name in new for one in kept]
    return bool(kept) and all(has)


def _finish(deployment: Deployment, fragment: str, shards: int, generation: int) -> Rescaled:
    """Remove the old generation."""
    given = read_tables(deployment.path)["fragments"][fragment][RESCALED]["given"]
    about = {"given": given, "generations": [[generation, shards]]}
    return remove_generation(
        deployment,
        fragment,
        False,
        about,
        lambda known: check_not_called_off(deployment, fragment, known),
    )


def _tell_servers(deployment: Deployment, tell: Tell) -> None:
    """Have servers start what is new there; one that is away starts it when it is asked again."""
    for server in tell_servers(deployment):
        tell(f"{server} cannot be reached: run this again when it is back")
