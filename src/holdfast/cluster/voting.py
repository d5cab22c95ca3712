"""Who votes in a cluster, and who is forgotten: what the coordinator does when it is asked to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.cluster.desired import Desired, Submission
from holdfast.cluster.placing import NotPlaced
from holdfast.deployment import Deployment
from holdfast.nodes.journal import Journal

if TYPE_CHECKING:
    from holdfast.cluster.member import Member


class Voting:
    """Changes of who takes part in the cluster."""

    def __init__(
        self,
        member: Member,
        lock: threading.RLock,
        staged: Callable[[str, Submission], Deployment],
        journal: Journal,
    ) -> None:
        """``lock``: only one changes the register at a time."""
        self._member = member
        self._lock = lock
        self._staged = staged
        self._journal = journal

    def change(self, options: dict[str, Any]) -> dict[str, Any]:
        """Give a server a vote, or take it away."""
        name, votes = str(options["server"]), bool(options["votes"])
        with self._lock:
            version, desired = self._member.newest
            address = _address_of(name, desired)
            before = self._member.voters
            if (address in before) == votes:
                raise NotPlaced(f"{name} {'votes already' if votes else 'has no vote'}")
            if votes and name not in self._member.there().cards:
                raise NotPlaced(f"{name} does not answer now; give it a vote when it does")
            left = [each for each in before if each != address]
            voters = tuple(sorted([*left, address] if votes else left))
            version = self._member.offer(desired, version, voters)
        self._journal.write("voters", voters=list(voters))
        return {"version": list(version), "voters": list(voters)}

    def forget(self, options: dict[str, Any]) -> dict[str, Any]:
        """Forget a server that is gone for good, so that another may have its name and address."""
        name = str(options["server"])
        with self._lock:
            version, desired = self._member.newest
            address = _address_of(name, desired)
            runs = [
                each
                for each, submission in desired.submissions.items()
                if self._staged(each, submission).hosted_by(name)
            ]
            if address in self._member.voters:
                raise NotPlaced(f"{name} has a vote: holdfast cluster vote HOST:PORT remove {name}")
            if runs:
                raise NotPlaced(f"{name} has parts of {', '.join(runs)}; withdraw them first")
            if name in self._member.there().cards:
                raise NotPlaced(f"{name} is there; stop it first")
            version = self._member.offer(desired.without_server(address), version)
        return {"version": list(version)}


def _address_of(name: str, desired: Desired) -> str:
    names = desired.names()
    if name not in names:
        raise NotPlaced(f"there is no server {name!r}; there are {', '.join(sorted(names))}")
    return names[name]
