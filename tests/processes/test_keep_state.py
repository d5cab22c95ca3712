"""A network of which stateless parts have changed goes on with its state: at one place for all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from holdfast.cluster.keep_state import keep_state
from holdfast.core.records import RecoveryRecord
from holdfast.kept.packed_codec import decode_record
from holdfast.kept.state_directory import StateDirectory
from holdfast.testing.undisturbed import logged_tuples, undisturbed
from tests.processes.test_from_now import NETWORK, NODES, World, running_world

FILTERED = NETWORK.replace("load.groupBy", 'load.filter("v >= 0.5").groupBy').replace(
    '.output("found")', '.filter("k < 2").output("found")'
)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    with running_world(tmp_path) as made:
        yield made


def record_of(world: World, node: str) -> RecoveryRecord:
    state = StateDirectory(world.hosted.deployment.data / "processes" / node / "state")
    try:
        assert state.manifest is not None
        return decode_record(state.manifest["record"])
    finally:
        state.close()


def test_the_change_takes_effect_at_one_place_and_windows_keep_what_they_have(
    world: World,
) -> None:
    first = world.hosted.network
    before, now = world.change(FILTERED)
    (said,) = keep_state(world.hosted.deployment, before, now, now)
    assert "'main' keeps its state" in said
    assert "aggregate_1 takes in what it gives from" in said
    since = record_of(world, "main-1").boundary
    assert record_of(world, "main-2").boundary == since
    log = world.hosted.deployment.data / "processes" / "main-1" / "streams" / "found"
    ended = logged_tuples(log).num_rows
    world.hosted.start(*NODES)
    had = world.results()
    world.run(lambda: world.results() > had + 4)
    world.producer.close(30.0)
    newest = int(time.time() * 1e6)
    world.run(lambda: world.view.stable_until > newest, sends=False)
    until = world.view.stable_until
    entry = world.hosted.deployment.data / "processes" / "entry-load" / "streams" / "load"
    tuples, found = logged_tuples(entry), world.view.stable
    assert found is not None
    # What the old network gave, then the new one's, whose windows have every tuple of before.
    old = undisturbed(first, {"load": tuples}, until)["found"].slice(0, ended)
    early = pc.less(tuples["stime"].cast(pa.int64()), since)
    taken = tuples.filter(pc.or_(early, pc.greater_equal(tuples["v"], 0.5)))
    new = undisturbed(first, {"load": taken}, until)["found"]
    new = new.filter(pc.less(new["k"], 2))
    last = pc.max(old["stime"]).as_py()
    wanted = pa.concat_tables([old, new.filter(pc.greater(new["stime"], last))])
    assert found.combine_chunks().equals(wanted.combine_chunks())
    assert found.num_rows > ended
