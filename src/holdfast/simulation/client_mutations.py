"""Deliberate bugs of clients: what they acknowledge, and where they go on after a crash."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.core.client import Client
from holdfast.core.unordered import UnorderedClient
from holdfast.simulation.planting import mutation


@mutation(Client, "_safe")
def acknowledge_what_is_not_committed(original: Any) -> Any:
    return lambda self: max(0, self.copy.next_id)


@mutation(Client, "__init__")
def show_again_what_an_earlier_life_had_for_good(original: Any) -> Any:
    def broken(self: Client, settings: Any) -> None:
        original(self, replace(settings, since=0))

    return broken


@mutation(UnorderedClient, "__init__", shape="missing_input")
def take_early_results_though_the_place_is_not_known(original: Any) -> Any:
    # Where it stands is known by time, and by id: both must go.
    def broken(self: UnorderedClient, settings: Any) -> None:
        original(self, replace(settings, since=0))
        self._placed = True

    return broken
