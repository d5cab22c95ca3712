"""Deliberate bugs of pairs that go out before the order has come so far."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.core.duplicates import DuplicateFilter
from holdfast.core.provenance import Claim, Trail
from holdfast.core.unordered import UnorderedClient
from holdfast.simulation.planting import mutation

SHAPE = "own_inputs"


@mutation(UnorderedClient, "_take_early", shape=SHAPE)
def take_by_its_time_what_came_alone(original: Any) -> Any:
    def broken(self: UnorderedClient, frame: Any, effects: list[Any]) -> None:
        found: list[Any] = []
        original(self, frame, found)
        effects += [
            one if one.choice is None else replace(one, choice=replace(one.choice, but=()))
            for one in found
        ]

    return broken


@mutation(DuplicateFilter, "_take_alone", shape=SHAPE)
def let_pairs_pass_again(original: Any) -> Any:
    def broken(self: DuplicateFilter, claim: Claim) -> tuple[Claim, ...]:
        original(self, claim)
        return (claim,)

    return broken


@mutation(DuplicateFilter, "_has_times", shape=SHAPE)
def take_alone_what_came_by_its_time(original: Any) -> Any:
    def broken(self: DuplicateFilter, claim: Claim) -> bool:
        return False

    return broken


@mutation(Trail, "singly", shape=SHAPE)
def claim_all_times_for_one_pair(original: Any) -> Any:
    return property(lambda self: self)


@mutation(Claim, "then", shape=SHAPE)
def keep_the_name_of_a_pair_behind_a_union(original: Any) -> Any:
    def broken(self: Claim, branch: Trail) -> Claim:
        found: Claim = original(self, branch)
        return replace(found, first_id=self.first_id, next_id=self.next_id)

    return broken


@mutation(Claim, "names", shape=SHAPE)
def know_a_pair_by_its_time_only(original: Any) -> Any:
    def broken(self: Claim, seq: int, stime: int) -> bool:
        if self.trail.alone:
            return self.trail.id_of(seq) is not None and stime == self.stime_max
        return bool(original(self, seq, stime))

    return broken
