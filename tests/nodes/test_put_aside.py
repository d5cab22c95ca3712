"""A replica that has its place again keeps only the last of the states that it has put aside."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

from holdfast.core.settings import Input, Output, Protection, ReplicaSettings, StandbySettings
from holdfast.errors import HoldfastError
from holdfast.flight.security import Security
from holdfast.frames import SEQ, STIME, TMAX
from holdfast.network import Network
from holdfast.nodes.hosted import Place
from holdfast.nodes.replica_node import ReplicaNode
from holdfast.plans.fragment_plans import FragmentPlan, FragmentStream

SCHEMA = pa.schema([STIME, TMAX, SEQ, pa.field("k", pa.int64())])


def load() -> Network:
    raise HoldfastError("there is no Spark here")


def test_one_that_has_its_place_keeps_the_last_state_that_it_put_aside(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        (tmp_path / f"state.aside-{number}").mkdir()
    stream = FragmentStream("o", SCHEMA, frozenset({"x"}))
    output = Output("o", frozenset({"x"}), ("reader",))
    security = Security()
    nowhere = security.location("127.0.0.1", 9)
    broken: list[BaseException] = []
    node = ReplicaNode(
        ReplicaSettings("main-2", (Input("x", ("entry-x",)),), (output,)),
        StandbySettings(("main-1", "main-2"), Protection.PASSIVE),
        FragmentPlan("main", {"x": SCHEMA}, (stream,), False, ()),
        load,
        tmp_path,
        Place("127.0.0.1", 0, dict.fromkeys(("entry-x", "main-1"), nowhere), security),
        broken.append,
    )
    node.start()
    try:
        deadline = time.monotonic() + 30.0
        while len(list(tmp_path.glob("state.aside-*"))) > 1:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        node.stop()
    assert [each.name for each in tmp_path.glob("state.aside-*")] == ["state.aside-10"]
    assert broken == []
