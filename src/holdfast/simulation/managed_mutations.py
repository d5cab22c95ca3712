"""Deliberate mistakes in what a coordinator decides; a simulated cluster must notice each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.core.adaptation import Adaptation
from holdfast.core.ground import Ground
from holdfast.core.managing import STABLE, Decision, Managing, RemoveReplicas, Replicas, Seen
from holdfast.simulation.cluster_mutations import ClusterMutation, planted

MANAGED_MUTATIONS: list[ClusterMutation] = []
# Each is found within so many seeds, from 0.
MANAGED_RUNS = 60

_mutation = planted(MANAGED_MUTATIONS)


class _Stable(dict[str, str]):
    """Everybody is said to be stable."""

    def get(self, key: str, default: Any = None) -> Any:
        return STABLE


@_mutation(Managing, "_replace")
def forget_the_lost_before_others_have_joined(original: Any) -> Any:
    return lambda self, each, seen, places: original(
        self, each, replace(seen, states=_Stable()), places
    )


@_mutation(Managing, "_one_fewer")
def end_the_old_before_the_new_is_stable(original: Any) -> Any:
    return lambda self, each, seen, choices: original(
        self, each, replace(seen, states=_Stable()), choices
    )


@_mutation(Managing, "_replace")
def remove_the_lost_without_replacing_them(original: Any) -> Any:
    def replaced(self: Managing, each: Replicas, seen: Seen, places: Any) -> Any:
        gone = tuple(one for one, server in each.at.items() if server in seen.lost)
        if 0 < len(gone) < len(each.at):
            return RemoveReplicas(each.fragment, gone), ""
        return original(self, each, seen, places)

    return replaced


@_mutation(Managing, "_one_fewer")
def keep_what_was_added(original: Any) -> Any:
    return lambda self, each, seen, choices: Decision()


@_mutation(Adaptation, "look")
def move_at_first_sight(original: Any) -> Any:
    def look(self: Adaptation, choices: Any, now: int) -> Any:
        settings = replace(self._settings, hold_us=1, rest_us=1)
        eager = Adaptation(settings)
        eager._since = {
            (each.fragment, each.server): (each.runner_up[0], 0)
            for each in choices
            if each.runner_up is not None
        }
        return original(eager, choices, now)

    return look


@_mutation(Ground, "one_more")
def put_two_where_they_fail_together(original: Any) -> Any:
    def one_more(self: Ground, *arguments: Any) -> Any:
        return original(replace(self, sites=self.sites[-1:]), *arguments)

    return one_more
