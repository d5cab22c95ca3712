"""``holdfast rescale`` with the number of shards that there were: the change is called off.

New shards may never come up, and whoever provides their inputs keeps everything for them. Until the
old generation is removed it computes all that the new one does and lacks nothing, so the new one
can be removed in its place, in one epoch: nothing is kept for it any more, and who has read from it
goes on with the old one as with another replica. Numbers of generations are not used again.
"""

from __future__ import annotations

import time
from typing import Any

from holdfast.cluster.generations import (
    LOOK_SECONDS,
    Rescaled,
    Status,
    Tell,
    given_number,
    is_gone,
    merging_of,
    remove_generation,
    shards_of,
    waits,
)
from holdfast.cluster.members import MembershipError, has_all
from holdfast.cluster.status import node_status
from holdfast.core.records import Membership
from holdfast.core.settings import Delivery
from holdfast.deployment import Deployment, FragmentSpec


def is_call_off(spec: FragmentSpec, shards: int) -> bool:
    """Whether that is the number of shards that others are taking over from."""
    return len(spec.generations) > 1 and shards == spec.generations[0].shards


def check_not_called_off(deployment: Deployment, fragment: str, known: Membership) -> None:
    """Raise if the change that is under way in ``deployment`` is so no more."""
    old, new = deployment.fragments[fragment].generations
    if is_gone(known, merging_of(deployment, fragment, newest=True)):
        raise MembershipError(
            f"the change of {fragment} to {new.shards} shards was called off meanwhile; the "
            f"{old.shards} before go on"
        )


def call_off(deployment: Deployment, fragment: str, wait_s: float, tell: Tell) -> Rescaled:
    """Remove the new generation again."""
    old, new = deployment.fragments[fragment].generations
    tell(f"the change of {fragment} to {new.shards} shards is called off: new shards end")
    _wait_until_old_can_go_on(deployment, fragment, wait_s)

    def check(known: Membership) -> None:
        if is_gone(known, merging_of(deployment, fragment, newest=False)):
            raise MembershipError(
                f"nothing is called off: the {new.shards} new shards of {fragment} have taken "
                f"over meanwhile, and the {old.shards} before are gone. Run it again to have "
                f"{old.shards} all the same: that is another change"
            )

    about = {
        "given": given_number(deployment, fragment),
        "generations": [[old.number, old.shards]],
        "used": new.number,
    }
    return remove_generation(deployment, fragment, True, about, check)


def _wait_until_old_can_go_on(deployment: Deployment, fragment: str, wait_s: float) -> None:
    """Return when the old generation has all that only the new one might have else."""
    lossy = deployment.fragments[fragment].delivery is Delivery.AT_MOST_ONCE
    shards = shards_of(deployment, fragment, newest=False)
    old = merging_of(deployment, fragment, newest=False)
    new = merging_of(deployment, fragment, newest=True)
    nodes = [name for names in (*shards, old, new) for name in names]
    nodes = [name for name in nodes if name not in deployment.gone]
    deadline = time.monotonic() + wait_s
    while True:
        found = node_status(deployment, nodes)
        lacking = [names for names in shards if not any(_goes_on(found, one) for one in names)]
        if not any(_goes_on(found, one) and (lossy or _has_all(found, one, new)) for one in old):
            lacking.append(old)
        if not lacking:
            return
        if time.monotonic() > deadline:
            names = [name for group in lacking for name in group if name in found]
            raise MembershipError(
                f"the change of {fragment} is not called off: of those before nobody can go on "
                f"after {wait_s:g} s: {waits(found, names)}. Both stay; run it again to try again"
            )
        time.sleep(LOOK_SECONDS)


def _goes_on(found: Status, name: str) -> bool:
    """Whether a node has something to go on from, or nothing to do yet."""
    said: dict[str, Any] = found.get(name, {"error": "it is gone"})
    return "error" not in said and (said.get("state") == "stable" or said.get("boundary", 0) > 0)


def _has_all(found: Status, name: str, new: tuple[str, ...]) -> bool:
    """Whether one that merges has all that a reader may ask it for, as it may ask others.

    One that never joined has: it trims what is acknowledged, and nothing else.
    """
    said = found[name]
    stable = [one for one in new if found.get(one, {}).get("state") == "stable"]
    return not said.get("incarnation", 0) or all(
        has_all(said["trimmed_below"], found[one]["trimmed_below"]) for one in stable
    )
