"""Shards whose number follows the load: what the file says, what they say, and who changes it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.cluster import following
from holdfast.cluster.following import Following, load_of
from holdfast.cluster.members import MembershipError
from holdfast.cluster.networks import load_network
from holdfast.cluster.rescaling import rescale
from holdfast.core.scaling import ScalingSettings
from holdfast.deployment import Deployment, DeploymentError, load_deployment
from holdfast.plans.membership_file import change_membership
from holdfast.testing.deployed import Load, expected_file, supervised, wait_for_lines
from tests.processes.test_shard_plans import written

SECONDS = 30.0


def well(busy: float | None, **other: Any) -> dict[str, Any]:
    said = {"state": "stable", "busy": busy, "behind_s": 0.1, "delay_s": 3.0, "input_ratio": 1.0}
    return {**said, **other}


def test_the_busiest_shard_counts_and_one_that_is_not_well_says_nothing() -> None:
    assert load_of([[well(0.2)], [well(0.7)]]) == 0.7
    # It falls behind: it would have to be twice as fast.
    assert load_of([[well(0.2)], [well(0.9, behind_s=4.0, input_ratio=2.0)]]) == 2.0
    assert load_of([[well(0.2)], [well(0.9, input_ratio=2.0)]]) == 0.9
    assert load_of([[well(0.2)], [well(None)]]) is None
    assert load_of([[well(0.2)], [well(0.2, state="recovering")]]) is None
    assert load_of([[well(0.2)], [{"error": "cannot be reached"}]]) is None
    # One that stands by does nothing; one that does another's work says that the other is lost.
    assert load_of([[well(0.7), well(None, state="suspended")]]) == 0.7
    assert load_of([[{"error": "cannot be reached"}], [well(0.7)]]) is None


def test_the_parts_of_a_shard_are_as_busy_as_their_driver() -> None:
    parts = [well(0.3), well(0.25), well(0.3), well(None, state="suspended")]
    assert load_of([parts, [well(0.5)], []]) == pytest.approx(0.85)
    # No driver does more than all the time; who falls behind says how much more that would take.
    assert load_of([[well(0.6), well(0.7)]]) == 1.0
    assert load_of([[well(0.6, behind_s=4.0, input_ratio=1.5), well(0.7)]]) == 1.5
    assert load_of([[well(0.6), well(None)]]) is None


def test_a_fragment_may_say_from_how_many_shards_to_how_many(tmp_path: Path) -> None:
    deployment = written(tmp_path, 'shards = "auto"')
    assert deployment.fragments["main"].between == (1, 4)
    assert list(deployment.fragments) == ["main.1", "main"]
    deployment = written(tmp_path, 'shards = "auto"\nshards_between = [2, 6]')
    assert deployment.fragments["main"].between == (2, 6)
    assert list(deployment.fragments) == ["main.1", "main.2", "main"]
    with pytest.raises(MembershipError, match="follow the load, from 2 to 6; change shards_betw"):
        rescale(deployment.path, "main", 3)


@pytest.mark.parametrize(
    ("fragment", "message"),
    [
        ("shards = 2\nshards_between = [1, 2]", 'it bounds shards = "auto"'),
        ("shards_between = [1, 2]", "give shards, too"),
        ('shards = "auto"\nshards_between = [3, 2]', "the least and the most shards, from 1 to"),
        ('shards = "auto"\nshards_between = [1, "2"]', "two numbers, like [1, 4]"),
        ('shards = "auto"\nprotection = "hybrid"\ncopies = 2', "as there are 1 shards"),
        ('shards = "auto"\ndelivery = "at-most-once"', "not for delivery = 'at-most-once'"),
        ('shards = "many"', 'a number, "auto", or a list of places'),
    ],
)
def test_mistakes_are_named(tmp_path: Path, fragment: str, message: str) -> None:
    with pytest.raises(DeploymentError) as caught:
        written(tmp_path, fragment)
    assert message in str(caught.value)


class Fragment:
    """Shards that have something to do, and are changed as they are in a deployment."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.work = 0.6
        self.changed: list[int] = []
        self.refusals = 0
        self.told: list[str] = []
        self._heard = threading.Condition()

    def node_status(self, deployment: Deployment, names: list[str]) -> dict[str, dict[str, Any]]:
        load = self.work / len(names)
        behind_s = 4.0 if load > 1.0 else 0.1
        said = well(min(1.0, load), input_ratio=load, behind_s=behind_s)
        return dict.fromkeys(names, said)

    def change_number(
        self, deployment: Deployment, fragment: str, shards: int, wait_s: float, tell: object
    ) -> None:
        generations = deployment.fragments[fragment].generations
        newest = generations[-1]
        if len(generations) == 1:
            kept = [[newest.number, newest.shards], [newest.number + 1, shards]]
            self._write(fragment, kept)
        if self.refusals:
            self.refusals -= 1
            raise MembershipError("new shards have not taken over")
        number = load_deployment(deployment.path).fragments[fragment].generations[-1].number
        self._write(fragment, [[number, shards]])
        with self._heard:
            self.changed.append(shards)
            self._heard.notify_all()

    def _write(self, fragment: str, generations: list[list[int]]) -> None:
        about = {"given": "auto", "generations": generations}
        change_membership(self.deployment, lambda known: known, shards={fragment: about})

    def wait(self, is_so: Callable[[], bool]) -> None:
        with self._heard:
            assert self._heard.wait_for(is_so, SECONDS), (self.changed, self.told)


def test_more_and_fewer_shards_follow_and_what_was_begun_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fragment = Fragment(written(tmp_path, 'shards = "auto"\nshards_between = [1, 3]'))
    monkeypatch.setattr(following, "node_status", fragment.node_status)
    monkeypatch.setattr(following, "change_number", fragment.change_number)
    monkeypatch.setattr(
        following, "ScalingSettings", lambda least, most: ScalingSettings(least, most, 0, 0)
    )
    follows = Following(fragment.deployment, fragment.told.append, look_s=0.01)
    fragment.work, fragment.refusals = 1.7, 3
    follows.start()
    try:
        fragment.wait(lambda: len(fragment.changed) >= 2)
        fragment.work = 0.1
        fragment.wait(lambda: len(fragment.changed) >= 3)
    finally:
        follows.stop()
    assert fragment.changed == [2, 3, 1]
    generations = load_deployment(fragment.deployment.path).fragments["main"].generations
    assert [(one.number, one.shards) for one in generations] == [(4, 1)]
    # What it waits for is said once.
    assert fragment.told[:2] == [
        "main: 1 shards have 1.70 to do; 2 follow",
        "main: new shards have not taken over",
    ]
    assert fragment.told[2] == "main has 2 shards"


DEAR = """
import os
import time

from holdfast import Network

network = Network("following", bucket="1 second")
load = network.source("load", "k bigint, v double")


def dearly(key, tuples, state):
    # What a tuple costs is what is divided; the oracle gets them for nothing.
    time.sleep(float(os.environ.get("HOLDFAST_TEST_TUPLE_SECONDS", "0")) * tuples.num_rows)
    return tuples.select(["stime", "v"]), (state or 0) + tuples.num_rows


load.groupBy("k").process(dearly, "v double", "bigint").output("out")
"""
FOLLOWS = """
network = "network.py"
[timing]
delay = "3 seconds"
[sources.load]
keep = true
[fragments.main]
shards = "auto"
shards_between = [1, 2]
protection = "{protection}"
[clients.recorder]
output = "out"
sink = "jsonl:data/out.jsonl"
"""


def _readings(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    return pa.table({"k": numbers % 16, "v": np.random.default_rng(first).random(count)})


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("protection", ["none", "hybrid"])
def test_shards_are_added_under_a_real_load_and_go_when_it_is_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protection: str
) -> None:
    """One shard is busy for nine tenths of its time, two for half of it."""
    patient = partial(ScalingSettings, grow_after_us=10_000_000, shrink_after_us=15_000_000)
    monkeypatch.setattr(following, "ScalingSettings", patient)
    monkeypatch.setenv("HOLDFAST_TEST_TUPLE_SECONDS", "0.0009")
    (tmp_path / "network.py").write_text(DEAR)
    (tmp_path / "deployment.toml").write_text(FOLLOWS.format(protection=protection))
    deployment = load_deployment(tmp_path / "deployment.toml")
    told: list[str] = []

    def shards() -> list[int]:
        """Of each generation that runs."""
        found = load_deployment(deployment.path).fragments["main"].generations
        return [one.shards for one in found]

    def wait_for(number: int) -> None:
        deadline = time.monotonic() + 300.0
        while shards() != [number]:
            assert time.monotonic() < deadline, (shards(), told)
            time.sleep(0.2)

    out = deployment.data / "out.jsonl"
    with supervised(deployment, told.append) as supervisor:
        assert shards() == [1]
        load = Load(deployment, "load", _readings, 1_000)
        wait_for(2)
        sent = load.stop()
        few = Load(deployment, "load", lambda first, count: _readings(sent + first, count), 100)
        wait_for(1)
        sent += few.stop()
        monkeypatch.delenv("HOLDFAST_TEST_TUPLE_SECONDS")
        network = load_network(deployment.network, "local[2]", {})
        expected = expected_file(network, deployment, "out")
        assert expected.count("\n") == sent
        wait_for_lines(supervisor, out, sent, 120.0)
    assert out.read_text() == expected
    changes = [text for text in told if "follow" in text]
    assert len(changes) == 2, told
