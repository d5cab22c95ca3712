"""Deliberate mistakes with bounds: too much goes, or too little; see ``mutations``."""

from __future__ import annotations

from typing import Any

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
