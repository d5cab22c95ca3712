"""Deliberate bugs of windows and joins that do not wait for all inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.core.ahead import AheadLanes, AheadLine, LookAhead
from holdfast.core.early_lane import EarlyLane
from holdfast.core.effects import RunAhead
from holdfast.core.events import AheadDone
from holdfast.core.provenance import Trail
from holdfast.simulation.planting import mutation

SHAPE = "own_inputs"


@mutation(AheadLanes, "_reach", shape=SHAPE)
def go_ahead_of_one_of_the_own_inputs(original: Any) -> Any:
    def broken(self: AheadLanes, line: AheadLine) -> int:
        furthest = max(self._copies[name].boundary for name in line.inputs)
        return furthest - furthest % self._bucket_us

    return broken


@mutation(AheadLanes, "_reach", shape=SHAPE)
def let_windows_wait_for_all_inputs(original: Any) -> Any:
    def broken(self: AheadLanes, line: AheadLine) -> int:
        lowest = min(one.boundary for one in self._copies.values())
        return lowest - lowest % self._bucket_us

    return broken


@mutation(AheadLanes, "_done", shape=SHAPE)
def forget_what_a_line_has_taken(original: Any) -> Any:
    def broken(self: AheadLanes, done: AheadDone, now: int) -> list[Any]:
        assert self._computing is not None
        before = self._computing[1].state
        effects: list[Any] = original(self, replace(done, state=before), now)
        return effects

    return broken


@mutation(AheadLanes, "_order", shape=SHAPE)
def claim_times_that_have_not_been_computed(original: Any) -> Any:
    def broken(self: AheadLanes, line: AheadLine, stop: int, now: int) -> RunAhead:
        order: RunAhead = original(self, line, stop, now)
        further = tuple(
            (stream, tuple(replace(one, next_id=one.next_id + self._bucket_us) for one in claims))
            for stream, claims in order.claims
        )
        order = replace(order, claims=further)
        self._computing = (line, order)
        return order

    return broken


@mutation(AheadLanes, "_begin", shape=SHAPE)
def go_on_with_a_line_that_the_order_has_overtaken(original: Any) -> Any:
    def broken(self: AheadLanes, look: LookAhead, now: int) -> list[Any]:
        oldest = [line.position for line in self.lines if line.position >= 0]
        older = replace(look, position=min([look.position, *oldest]))
        effects: list[Any] = original(self, older, now)
        return effects

    return broken


@mutation(EarlyLane, "_take_timed", shape=SHAPE)
def claim_times_whose_tuples_are_still_to_come(original: Any) -> Any:
    def broken(self: EarlyLane, stream: str, copy: Any) -> None:
        had = len(self._pending)
        original(self, stream, copy)
        for at in range(had, len(self._pending)):
            piece = self._pending[at]
            claims = tuple(replace(one, next_id=one.next_id + 100_000) for one in piece.claims)
            self._pending[at] = replace(piece, claims=claims)

    return broken


@mutation(Trail, "place_of", shape=SHAPE)
def take_the_hash_of_a_result_for_its_time(original: Any) -> Any:
    def broken(self: Trail, seq: int, stime: int) -> int | None:
        return self.id_of(seq)

    return broken
