"""Deliberate bugs of replicas that end in order; see ``mutations``."""

from __future__ import annotations

from typing import Any

from holdfast.core import copy
from holdfast.core.effects import Append
from holdfast.simulation.disk import Disk
from holdfast.simulation.planting import mutation


@mutation(copy, "last_orders", shape="stopped")
def end_without_what_waits_for_the_disk(original: Any) -> Any:
    def broken(*parts: Any) -> list[Any]:
        return [order for order in original(*parts) if not isinstance(order, Append)]

    return broken


@mutation(copy, "last_orders", shape="stopped")
def end_after_a_kill_as_if_nothing_had_been_read(original: Any) -> Any:
    # What an earlier life has published, and what readers say that they have: either would do.
    def broken(settings: Any, served: Any, earlier_lives: Any) -> list[Any]:
        for stream in served.values():
            stream.asked_id = 0
        earlier_lives.passed = True
        orders: list[Any] = original(settings, served, earlier_lives)
        return orders

    return broken


@mutation(Disk, "begin_life", shape="stopped")
def leave_the_note_of_an_earlier_life(original: Any) -> Any:
    def broken(self: Disk) -> Any:
        return self.ended

    return broken
