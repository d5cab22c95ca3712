"""What is promised of what a cluster runs, watched while servers and links of it fail.

enough   what is obeyed has as many replicas of every fragment as are wanted
state    what is obeyed has a replica of every fragment that has its state; and when replicas end,
         as many as are wanted have it
settled  when all has been well for long: so many replicas as are wanted, all stable, on servers
         that do not fail together, nothing moves any more, and nothing has moved in vain
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.cluster_messages import Version
from holdfast.simulation.checkers import Violation
from holdfast.simulation.cluster_checkers import ClusterChecker


@dataclass(frozen=True)
class Fragment:
    """What the register has of a fragment.

    made  how many replicas there ever were: the next one's name.
    """

    wanted: int
    at: Mapping[str, str]
    made: int
    moves: Mapping[str, str] = field(default_factory=dict)


def write_value(fragments: Mapping[str, Fragment]) -> str:
    return json.dumps({name: vars(each) for name, each in fragments.items()}, sort_keys=True)


def read_value(value: str) -> dict[str, Fragment]:
    found: dict[str, Any] = json.loads(value) if value else {}
    return {name: Fragment(**each) for name, each in found.items()}


class ManagedChecker(ClusterChecker):
    """As for every cluster; and what its desired state says is possible."""

    def __init__(self, has_state: Callable[[str], bool]) -> None:
        """``has_state``: whether a replica has the state of its fragment, on whichever disk."""
        super().__init__()
        self._has_state = has_state
        self._begun: set[str] = set()
        self._newest: tuple[Version, dict[str, Fragment]] = (Version(), {})

    def obeys(self, server: str, before: Version, version: Version, value: str) -> None:
        super().obeys(server, before, version, value)
        fragments = read_value(value)
        for name, each in fragments.items():
            self._looks_at(name, each, f"{server} obeys {name} {each}, {version}")
        if version > self._newest[0]:
            self._ended(fragments, f"{server} obeys {fragments}, {version}")
            self._newest = (version, fragments)

    def _looks_at(self, name: str, each: Fragment, what: str) -> None:
        if len(each.at) < each.wanted:
            raise Violation("enough", what)
        if any(self._has_state(replica) for replica in each.at):
            self._begun.add(name)
        elif name in self._begun:
            raise Violation("state", f"nobody has its state: {what}")

    def _ended(self, fragments: Mapping[str, Fragment], what: str) -> None:
        """Whoever takes part no longer has left its state with as many as are wanted."""
        for name, known in self._newest[1].items():
            each = fragments[name]
            have_it = sum(self._has_state(replica) for replica in each.at)
            if known.at.keys() - each.at.keys() and have_it < each.wanted:
                raise Violation("state", f"{have_it} of {name} have its state: {what}")

    def settles(
        self, fragments: Mapping[str, Fragment], states: Mapping[str, str], zones: Mapping[str, str]
    ) -> None:
        """Called at the end, when all has been well for long."""
        for name, each in fragments.items():
            if len(each.at) != each.wanted:
                raise Violation("settled", f"{name} has {len(each.at)} replicas: {each}")
            unwell = {one: states[one] for one in each.at if states[one] != "stable"}
            if unwell:
                raise Violation("settled", f"{name} is not well: {unwell}")
            if not are_apart(each.at.values(), zones):
                raise Violation("settled", f"{name} has two that fail together: {each}, {zones}")

    def rests(self, moves: int, what: str) -> None:
        """Called with the changes of a world in which nothing happens."""
        if moves:
            raise Violation("settled", f"{moves} changes {what}")

    def _holds_all(self, value: str, who: str) -> None:
        if self.acknowledged and not value:
            raise Violation("lost", f"something was submitted; {who} has nothing")


def are_apart(servers: Iterable[str], zones: Mapping[str, str]) -> bool:
    """Whether no two of them fail together."""
    found = [zones[each] for each in servers]
    return len(set(found)) == len(found)
