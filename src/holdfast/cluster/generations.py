"""Two generations of a fragment's shards: who is of which, and the decision that one of them goes.

While a fragment is rescaled (``rescaling``) it has two. Either the old one goes, when the new one
has taken over, or the new one does, when that is called off (``calling_off``). Each is one decision
behind one lock, and whoever comes second finds that it was made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.cluster.members import Changed, tell_servers, wait_for_epoch, why_not_yet
from holdfast.core.records import Membership
from holdfast.deployment import Deployment, load_deployment, read_tables
from holdfast.plans.membership_file import change_membership

LOOK_SECONDS = 0.2

Tell = Callable[[str], None]
# What each node says of itself.
Status = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Rescaled(Changed):
    """What came of another number of shards.

    shards      how many there are now.
    generation  how many times that has changed, and one.
    """

    shards: int
    generation: int


def given_number(deployment: Deployment, fragment: str) -> object:
    """What the deployment file says of the number of shards."""
    given = read_tables(deployment.path)["fragments"][fragment]["shards"]
    return len(given) if isinstance(given, list) else given


def merging_of(deployment: Deployment, fragment: str, newest: bool) -> tuple[str, ...]:
    """Those that merge the newest generation of shards, or the one before it."""
    spec = deployment.fragments[fragment]
    number = spec.generations[-1 if newest else 0].number
    return tuple(one for one in spec.processes if spec.merged_by(one).number == number)


def shards_of(deployment: Deployment, fragment: str, newest: bool) -> list[tuple[str, ...]]:
    """The replicas of each shard, or of each part of one, of one of two generations."""
    generation = deployment.fragments[fragment].generations[-1 if newest else 0]
    replicas = (deployment.fragments[name].processes for name in generation.names)
    return [tuple(one for one in names if one not in deployment.gone) for names in replicas]


def is_gone(known: Membership, merging: tuple[str, ...]) -> bool:
    """Whether a generation was removed, by those that merge it."""
    return all(known.gone_since(one) is not None for one in merging)


def waits(found: Status, names: list[str]) -> str:
    """What nodes wait for, in words."""
    return "; ".join(f"{name}: {why_not_yet(found.get(name, {}))}" for name in names)


def remove_generation(
    deployment: Deployment,
    fragment: str,
    newest: bool,
    about: dict[str, Any],
    check: Callable[[Membership], None],
) -> Rescaled:
    """Decide that one of two generations goes, and have it known.

    about  what the membership says of the other one from now on.
    check  raises if it was decided otherwise meanwhile.
    """
    leaving = [name for names in shards_of(deployment, fragment, newest) for name in names]
    leaving += merging_of(deployment, fragment, newest)
    leaving = [name for name in leaving if name not in deployment.gone]

    def remove(known: Membership) -> Membership:
        check(known)
        return known.without(*leaving)

    changed = change_membership(deployment, remove, shards={fragment: about})
    found = load_deployment(deployment.path)
    unaware = (*tell_servers(found), *wait_for_epoch(found, changed.epoch, 10.0))
    ((generation, shards),) = about["generations"]
    return Rescaled(changed.epoch, unaware, shards, generation)
