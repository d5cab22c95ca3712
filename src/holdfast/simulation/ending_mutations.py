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


@mutation(Disk, "begin_life", shape="stopped")
def leave_the_note_of_an_earlier_life(original: Any) -> Any:
    def broken(self: Disk) -> Any:
        return self.ended

    return broken
