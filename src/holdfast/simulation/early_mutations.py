"""Deliberate bugs of early results: what is claimed, passes, is remembered, and waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.core import upstream
from holdfast.core.duplicates import DuplicateFilter
from holdfast.core.early_lane import EarlyLane
from holdfast.core.effects import RunEarly
from holdfast.core.events import EarlyDone
from holdfast.core.frame import Kind
from holdfast.core.provenance import Choice, Trail
from holdfast.core.settings import SECOND_US
from holdfast.core.unordered import UnorderedClient
from holdfast.simulation.planting import mutation

SHAPE = "missing_input"

# -- what passes, and what is remembered of it ----------------------------------------------


@mutation(DuplicateFilter, "take", shape=SHAPE)
def let_early_results_pass_again(original: Any) -> Any:
    def broken(self: DuplicateFilter, claims: Any) -> Any:
        original(self, claims)
        return tuple(claims)

    return broken


@mutation(DuplicateFilter, "left", shape=SHAPE)
def let_pass_in_order_what_came_early(original: Any) -> Any:
    def broken(self: DuplicateFilter) -> Choice | None:
        return None

    return broken


@mutation(DuplicateFilter, "forget_before", shape=SHAPE)
def remember_for_ever_what_passed(original: Any) -> Any:
    def broken(self: DuplicateFilter, cut: int) -> None:
        return None

    return broken


@mutation(DuplicateFilter, "forget_before", shape=SHAPE)
def forget_what_passed_before_it_came_in_order(original: Any) -> Any:
    def broken(self: DuplicateFilter, cut: int) -> None:
        original(self, cut + SECOND_US)

    return broken


@mutation(UnorderedClient, "_take_early", shape=SHAPE)
def take_all_of_a_frame_of_which_a_part_is_new(original: Any) -> Any:
    def broken(self: UnorderedClient, frame: Any, effects: list[Any]) -> None:
        found: list[Any] = []
        original(self, frame, found)
        effects += [replace(one, choice=None) for one in found]

    return broken


@mutation(UnorderedClient, "_take_early", shape=SHAPE)
def take_early_what_came_in_order(original: Any) -> Any:
    def broken(self: UnorderedClient, frame: Any, effects: list[Any]) -> None:
        found: list[Any] = []
        original(self, frame, found)
        effects += [replace(one, stime_from=0) for one in found]

    return broken


# -- what is claimed ------------------------------------------------------------------------


@mutation(EarlyLane, "_take_in_order", shape=SHAPE)
def claim_a_tuple_that_has_not_come(original: Any) -> Any:
    def broken(self: EarlyLane, stream: str, frame: Any) -> None:
        had = len(self._pending)
        original(self, stream, frame)
        for at in range(had, len(self._pending)):
            claims = tuple(
                replace(one, next_id=one.next_id + 1) for one in self._pending[at].claims
            )
            self._pending[at] = replace(self._pending[at], claims=claims)

    return broken


@mutation(EarlyLane, "_done", shape=SHAPE)
def claim_results_that_were_not_computed(original: Any) -> Any:
    def broken(self: EarlyLane, done: EarlyDone, now: int) -> list[Any]:
        # The last tuple of each output is left out, the claim is not.
        fewer = [
            replace(one, count=one.count - 1, block=one.block[:-1])  # type: ignore[index]
            for one in done.outputs
        ]
        left = replace(done, outputs=tuple(one for one in fewer if one.count))
        effects: list[Any] = original(self, left, now)
        return effects

    return broken


@mutation(Trail, "then", shape=SHAPE)
def forget_by_which_branch_a_tuple_came(original: Any) -> Any:
    def broken(self: Trail, branch: Trail) -> Trail:
        found: Trail = original(self, Trail(branch.bits, 0))
        return found

    return broken


# -- what waits -----------------------------------------------------------------------------


@mutation(EarlyLane, "_begin", shape=SHAPE)
def let_early_results_wait_for_the_order(original: Any) -> Any:
    def broken(self: EarlyLane, complete: int, now: int) -> list[RunEarly]:
        # One input is there up to where all are.
        lowest = min(one.boundary for one in self._copies.values())
        waits = any(one.newest >= lowest for one in self._pending)
        effects: list[RunEarly] = [] if waits else original(self, complete, now)
        return effects

    return broken


@mutation(EarlyLane, "_begin", shape=SHAPE)
def compute_early_what_comes_in_order_only(original: Any) -> Any:
    def broken(self: EarlyLane, complete: int, now: int) -> list[RunEarly]:
        self._pending = [one for one in self._pending if one.slices[0].header.kind is Kind.STABLE]
        effects: list[RunEarly] = original(self, complete, now) if self._pending else []
        return effects

    return broken


@mutation(EarlyLane, "_failed", shape="failing_jobs")
def lose_the_tuples_of_an_early_job_that_fails(original: Any) -> Any:
    def broken(self: EarlyLane, reason: str, now: int) -> None:
        self._computing = ()
        original(self, reason, now)

    return broken


@mutation(upstream, "FROM_STANDING", shape=SHAPE)
def take_early_results_only_from_whom_one_follows(original: Any) -> Any:
    return (Kind.STABLE, Kind.BOUNDARY)
