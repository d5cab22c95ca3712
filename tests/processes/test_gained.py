"""A source gains a column, and an output then, too: everything that was kept goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from holdfast.client import Client, View
from holdfast.cluster.changed import going_on
from holdfast.cluster.planning import plan_of
from holdfast.cluster.starting import check_logs
from holdfast.description import Gained
from holdfast.errors import StateError
from holdfast.plans.plan import Plan, plan_path, read_plan, write_plan
from holdfast.testing.undisturbed import logged_tuples, undisturbed
from tests.processes.copies import Hosted

NETWORK = """
from pyspark.sql import functions as F
from holdfast import Network, window

network = Network("gaining", bucket="200 ms")
load = network.source("load", "k bigint, v double")
load.filter("v >= 0").output("raw")
load.groupBy(window("2 seconds"), "k").agg(F.sum("v").alias("v")).output("sums")
"""
GAINED = NETWORK.replace("v double", "v double, word string")
DEPLOYMENT = """
network = "network.py"
[timing]
delay = "4 seconds"
heartbeat = "100 ms"
[sources.load]
keep = true
[fragments.main]
replicas = 1
[clients.raws]
output = "raw"
[clients.sums]
output = "sums"
"""


class World:
    """An entry point, a replica, and a client of each output, of whom nothing is in memory only."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.views = {"raw": View(), "sums": View()}
        self._next_ids = dict.fromkeys(self.views, 0)
        self.begin(Hosted(directory, NETWORK, DEPLOYMENT))

    def begin(self, hosted: Hosted) -> None:
        self.hosted = hosted
        self.entry = hosted._host("entry-load")._entry("entry-load")
        self.entry.start()
        hosted.start("main-1")
        self.producer = hosted.producer_of("load")
        self.clients = {
            output: Client.of(hosted.deployment.path, output, name=name, next_id=next_id)
            for (output, next_id), name in zip(
                self._next_ids.items(), ("raws", "sums"), strict=True
            )
        }

    def run(self, until: Callable[[], bool], **more: object) -> None:
        """Send and read until something holds."""
        deadline = time.monotonic() + 120.0
        number = 0
        while not until():
            assert time.monotonic() < deadline
            assert not self.hosted.failures
            if self.producer.pending < 30:
                rows = {"k": number % 3, "v": 0.25 * (number % 7), **more}
                self.producer.send([rows])
                number += 1
            for output, client in self.clients.items():
                event = client.read(0.01)
                if event is not None:
                    self.views[output].apply(event)

    def count(self, output: str) -> int:
        stable = self.views[output].stable
        return 0 if stable is None else stable.num_rows

    def words(self) -> list[str | None]:
        """The gained column of all raw tuples, once there is one."""
        stable = self.views["raw"].stable
        has = stable is not None and "word" in stable.column_names
        return stable["word"].to_pylist() if stable is not None and has else []

    def end(self) -> None:
        self.producer.close(30.0)
        for output, client in self.clients.items():
            self._next_ids[output] = client.next_id
            client.close()
        self.hosted.stop(*list(self.hosted.copies))
        self.entry.stop()

    def change(self, network: str) -> None:
        """Another network in the place of the one that has ended, as ``holdfast up`` has it."""
        before = plan_path(self.hosted.deployment).read_bytes()
        hosted = Hosted(self.directory, network, DEPLOYMENT)
        plan_path(hosted.deployment).write_bytes(before)

        def planned(gained: Gained | None = None) -> Plan:
            return plan_of(hosted.network, gained)

        plan = going_on(hosted.deployment, planned(), planned)
        check_logs(hosted.deployment, plan)
        write_plan(hosted.deployment, plan)
        self.begin(hosted)


def test_a_source_gains_a_column_and_everything_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(tmp_path)
    try:
        world.run(lambda: min(world.count("sums") - 2, world.count("raw")) > 0)
        world.end()
        old = world.hosted.deployment
        kept = read_plan(old).fragments["main"]
        # Between two windows: what the open one has so far is in the replica's state.
        world.change(GAINED)
        now = read_plan(world.hosted.deployment).fragments["main"]
        assert now.earlier == (kept.identity,)
        had, summed = world.count("raw"), world.count("sums")
        world.run(lambda: world.count("sums") > summed + 4, word="new")
        manifest = tmp_path / "data" / "processes" / "main-1" / "state" / "manifest.json"
        world.run(lambda: list(now.description) == json.loads(manifest.read_text())["network"])
        tuples = logged_tuples(tmp_path / "data" / "processes" / "entry-load" / "streams" / "load")
        found = world.views["sums"].stable
        assert found is not None
        until = pc.max(found["stime"].cast(pa.int64())).as_py() + 1
        wanted = undisturbed(world.hosted.network, {"load": tuples}, until)
        assert found.combine_chunks().equals(wanted["sums"].combine_chunks())
        world.run(lambda: "new" in world.words())
        assert set(world.words()[:had]) == {None}
    finally:
        world.end()


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (GAINED.replace("string", "string NOT NULL"), "word: string not null"),
        (
            GAINED.replace('F.sum("v").alias("v")', 'F.max("word").alias("v")'),
            "aggregate_1: ",
        ),
    ],
    ids=["not null", "used in a window"],
)
def test_what_cannot_be_kept_is_refused_with_the_differences(
    spark: SparkSession, tmp_path: Path, changed: str, line: str
) -> None:
    before = Hosted(tmp_path / "before", NETWORK, DEPLOYMENT)
    after = Hosted(tmp_path / "after", changed, DEPLOYMENT)
    plan_path(after.deployment).write_bytes(plan_path(before.deployment).read_bytes())
    state = after.deployment.data / "processes" / "main-1" / "state" / "manifest.json"
    state.parent.mkdir(parents=True)
    state.write_text("something")

    def planned(gained: Gained | None = None) -> Plan:
        return plan_of(after.network, gained)

    with pytest.raises(StateError, match="What differs") as caught:
        going_on(after.deployment, planned(), planned)
    assert line in str(caught.value)
