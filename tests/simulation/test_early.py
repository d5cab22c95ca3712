"""Clients without an order, in a simulated world whose inputs are missing in turn."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.simulation.run import shaped
from holdfast.simulation.world import World


@pytest.mark.slow
def test_windows_and_joins_go_ahead_of_inputs_they_do_not_rest_on() -> None:
    scenario = shaped(3, "own_inputs")
    assert scenario is not None
    world = World(scenario.spec, scenario.schedule, Random(3), scenario.server_of)
    world.run()
    unordered = {one.stream: one for one in world.clients.values() if one.unordered}
    for stream in ("f00.0", "f00.1", "f10.0", "f10.2"):
        assert unordered[stream].early_count > len(unordered[stream].stable) / 2
        assert not unordered[stream].tentative


@pytest.mark.slow
def test_results_come_early_while_an_input_is_missing() -> None:
    scenario = shaped(2, "missing_input")
    assert scenario is not None
    world = World(scenario.spec, scenario.schedule, Random(2), scenario.server_of)
    world.run()
    unordered = [client for client in world.clients.values() if client.unordered]
    assert len(unordered) == 2
    for client in unordered:
        assert client.early_count > len(client.stable) / 2
        assert not client.tentative
