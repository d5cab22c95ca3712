"""Deliberate mistakes with bounds: too much goes, or too little; see ``mutations``."""

from __future__ import annotations

from typing import Any

from holdfast.core.bounds import BoundWatch
from holdfast.core.serving import ServedStream
from holdfast.simulation.planting import mutation


@mutation(ServedStream, "drop_tentative", shape="bounded")
def drop_stable_tuples_with_the_tentative_ones(original: Any) -> Any:
    def broken(self: ServedStream, tuples: int, frames: int) -> None:
        before = self.dropped
        original(self, tuples, frames)
        if self.dropped > before and len(self.stable) > 1:
            self._let_go(1)

    return broken


@mutation(ServedStream, "drop_tentative", shape="bounded")
def keep_tentative_tuples_beyond_a_bound(original: Any) -> Any:
    def broken(self: ServedStream, tuples: int, frames: int) -> None:
        pass

    return broken


@mutation(BoundWatch, "_if_it_stands", shape="withheld")
def wait_for_nobody_who_is_there_and_stands_still(original: Any) -> Any:
    def broken(self: BoundWatch, *arguments: Any) -> None:
        return None

    return broken


@mutation(BoundWatch, "waits", shape="withheld")
def tell_nobody_that_a_replica_is_full(original: Any) -> Any:
    def broken(self: BoundWatch, now: int) -> str:
        return ""

    return broken


@mutation(BoundWatch, "note_full", shape="withheld")
def go_on_being_full_when_there_is_room(original: Any) -> Any:
    def broken(self: BoundWatch, consumer: str, why: str) -> None:
        if why:
            original(self, consumer, why)

    return broken


@mutation(BoundWatch, "_may_lapse", shape="withheld")
def let_go_of_the_last_replica(original: Any) -> Any:
    def broken(self: BoundWatch, *arguments: Any) -> bool:
        return True

    return broken


@mutation(BoundWatch, "heard", shape="withheld")
def let_go_of_one_that_is_there(original: Any) -> Any:
    def broken(self: BoundWatch, consumer: str, now: int, joins: bool = False) -> None:
        if consumer not in self._heard_at:
            original(self, consumer, now, joins)

    return broken
