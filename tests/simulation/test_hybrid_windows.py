"""Hybrid copies whose state is in the output log, window by window, simulated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.core.settings import Continuous, Protection
from holdfast.simulation.run import Scenario, run, shaped


def hybrid_in_log(seed: int) -> Scenario:
    """Two copies that are lost in the middle of something, as hybrid ones with window states."""
    scenario = shaped(seed, "cut_short")
    assert scenario is not None
    (fragment,) = scenario.spec.fragments
    assert fragment.standby is not None
    bucket_us = scenario.spec.timing.bucket_us
    pair = replace(fragment.standby, protection=Protection.HYBRID, misses_until_awake=1)
    kept = Continuous(8, 20, None, bucket_us // 2, bucket_us)
    changed = replace(fragment, standby=pair, continuous=fragment.continuous or kept)
    return replace(scenario, spec=replace(scenario.spec, fragments=(changed,)))


@pytest.mark.parametrize("seed", range(3))
def test_they_stand_in_for_each_other(seed: int) -> None:
    result = run(hybrid_in_log(seed))
    assert result.reason == ""
    assert result.stable
