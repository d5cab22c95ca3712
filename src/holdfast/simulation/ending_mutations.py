"""Deliberate bugs of replicas that end in order; see ``mutations``."""

from __future__ import annotations

from typing import Any

from holdfast.core import copy
from holdfast.core.effects import Append
from holdfast.core.ending import EarlierLives
from holdfast.simulation import replica_process
from holdfast.simulation.disk import Disk
from holdfast.simulation.planting import mutation


@mutation(copy, "last_orders", shape="stopped")
def end_without_what_waits_for_the_disk(original: Any) -> Any:
    def broken(*parts: Any) -> list[Any]:
        return [order for order in original(*parts) if not isinstance(order, Append)]

    return broken


@mutation(EarlierLives, "_reached", shape="stopped")
def end_as_soon_as_one_is_stable_after_a_kill(original: Any) -> Any:
    # It may be behind what the life before it, which was killed, has published.
    def broken(self: EarlierLives, others: int, boundary: int) -> None:
        self.passed = True

    return broken


@mutation(EarlierLives, "__init__", shape="stopped")
def forget_that_the_life_before_was_killed(original: Any) -> Any:
    def broken(self: EarlierLives, found: Any, margin_us: int) -> None:
        original(self, found, margin_us)
        self.passed = True

    return broken


@mutation(Disk, "begin_life", shape="stopped")
def leave_the_note_of_an_earlier_life(original: Any) -> Any:
    def broken(self: Disk) -> Any:
        return self.ended

    return broken


@mutation(replica_process, "was_whole", shape="stopped")
def take_an_end_for_whole_that_the_disk_has_not_got(original: Any) -> Any:
    def broken(noted: Any, logged: Any) -> bool:
        return noted is not None

    return broken
