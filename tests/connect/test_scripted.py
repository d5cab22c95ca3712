"""Sources of tests: they crash and pause where the data says."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.connect.jsonl_sink import write_jsonl
from holdfast.errors import InputError
from holdfast.network import Network
from holdfast.single.run import run
from holdfast.testing import Crash, Pause, SourceCrashed, scripted

SCHEMA = pa.schema([("value", pa.int64())])


def test_each_crash_happens_once() -> None:
    source = scripted([{"value": 1}], Crash("first"), [{"value": 2}], Crash(), pa.table({"v": [3]}))
    reader = source.open(SCHEMA, None, None)
    chunk = reader.read()
    assert chunk is not None
    assert chunk.table.to_pylist() == [{"value": 1}]
    with pytest.raises(SourceCrashed, match="first"):
        reader.read()
    reader = source.open(SCHEMA, reader.position, None)
    assert reader.read() is not None
    with pytest.raises(SourceCrashed):
        reader.read()
    reader = source.open(SCHEMA, {"items": 0}, None)  # from the beginning: no crash is left
    assert [reader.read() is None for _ in range(4)] == [False, False, False, True]
    assert reader.ended


def test_a_pause_lasts_until_its_condition_holds() -> None:
    healed: list[bool] = []
    source = scripted(Pause(until=lambda: bool(healed)), [{"value": 1}], Pause(0.0))
    reader = source.open(SCHEMA, None, None)
    assert reader.read() is None
    assert not reader.ended
    healed.append(True)
    assert reader.read() is not None
    assert reader.read() is None
    assert reader.ended


def test_what_is_no_item_is_refused() -> None:
    with pytest.raises(InputError, match="expected rows, a Crash or a Pause, got 'rows'"):
        scripted("rows")


@pytest.mark.jobs
def test_a_run_goes_on_after_a_crash(spark: SparkSession, tmp_path: Path) -> None:
    network = Network("scripted", spark=spark)
    network.source("s", "at timestamp, value bigint", stime="at").output("out")

    def rows(*seconds: int) -> pa.Table:
        at = pa.array([each * 1_000_000 for each in seconds]).cast(pa.timestamp("us", tz="UTC"))
        return pa.table({"at": at, "value": list(seconds)})

    source = scripted(rows(1, 2), rows(3), Crash(), rows(4), rows(9))
    outputs = {"out": write_jsonl(tmp_path / "out.jsonl")}
    with pytest.raises(SourceCrashed):
        run(network, {"s": source}, outputs, state=tmp_path / "state")
    assert run(network, {"s": source}, outputs, state=tmp_path / "state").finished
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["value"] for line in lines] == [1, 2, 3, 4, 9]
