"""Results that no log has are on disk where they are too many for the memory.

Whoever waits for that disk is the thread of the jobs, never the one that answers heartbeats.
"""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from holdfast import disk
from holdfast.blocks import Block
from holdfast.core.effects import Line, RunJob
from holdfast.core.events import Event, JobDone, OutputBlock
from holdfast.core.settings import Keeping, StandbySettings
from holdfast.core.stream_copy import FAR_FUTURE
from holdfast.disk import Fault
from holdfast.nodes.jobs import Jobs
from holdfast.nodes.replica_node import ReplicaNode
from holdfast.nodes.spill import Spill
from holdfast.spark.state import EMPTY
from tests.blocks_for_tests import in_memory

RESULTS = pa.table(
    {
        "stime": pa.array(range(1_000), pa.timestamp("us", "UTC")),
        "tmax": pa.array(range(1_000), pa.timestamp("us", "UTC")),
        "v": range(1_000),
    }
)


class Engine:
    """Gives the same results for every bucket."""

    def __init__(self) -> None:
        self.input_schemas: dict[str, pa.Schema] = {}

    def activate(self) -> None:
        pass

    def advance(self, *arguments: Any, **options: Any) -> SimpleNamespace:
        return SimpleNamespace(state=EMPTY, outputs={"o": RESULTS}, rejected=())

    def due(self, state: object) -> int:
        return FAR_FUTURE


class Workshop:
    is_open = True

    def engine(self) -> Engine:
        return Engine()

    def state(self, handle: object) -> object:
        return EMPTY


@pytest.fixture
def done() -> Queue[Event]:
    return Queue()


def take_tentative(spill: Spill, line: Line, block: Block) -> None:
    if line is Line.LIVE:
        spill.take(block)


def run(line: Line, spill: Spill, done: Queue[Event]) -> Block:
    on_results = partial(take_tentative, spill)
    jobs = Jobs(cast(Any, Workshop()), Keeping.STATE, done.put, on_results=on_results)
    jobs.start()
    try:
        jobs.submit(RunJob(1, line, None, 0, 1_000, (), (("o", 0),)))
        found = done.get(timeout=60.0)
    finally:
        jobs.close()
    assert isinstance(found, JobDone), found
    (output,) = found.outputs
    assert isinstance(output.block, Block)
    return output.block


def test_tentative_results_beyond_the_memory_are_on_disk_until_nobody_needs_them(
    tmp_path: Path, done: Queue[Event]
) -> None:
    spill = Spill(tmp_path / "tentative", lambda key, text: None, limit_bytes=0)
    block = run(Line.LIVE, spill, done)
    assert not in_memory(block)
    assert len(list((tmp_path / "tentative").iterdir())) == 1
    assert pa.Table.from_batches([block.batch()]).equals(RESULTS)
    del block
    assert list((tmp_path / "tentative").iterdir()) == []


def test_stable_results_are_in_the_log_anyway(tmp_path: Path, done: Queue[Event]) -> None:
    spill = Spill(tmp_path / "tentative", lambda key, text: None, limit_bytes=0)
    assert in_memory(run(Line.STABLE, spill, done))
    assert list((tmp_path / "tentative").iterdir()) == []


def copy_with_a_full_disk(directory: Path, logs_results: bool) -> ReplicaNode:
    """One of two copies, of which there is only what takes results."""
    node = object.__new__(ReplicaNode)
    rest: dict[str, Any] = {
        "_pair": StandbySettings(("a", "b")),
        "_awaits_result": False,
        "_disk": SimpleNamespace(logs_results=logs_results),
        "_queued": Spill(directory / "queued", lambda key, text: None, limit_bytes=0),
        "_tentative": Spill(directory / "tentative", lambda key, text: None, limit_bytes=0),
    }
    for name, value in rest.items():
        setattr(node, name, value)
    return node


@pytest.mark.parametrize("line", [Line.STABLE, Line.LIVE])
def test_the_thread_that_answers_heartbeats_never_waits_for_the_disk(
    tmp_path: Path, line: Line
) -> None:
    node = copy_with_a_full_disk(tmp_path, logs_results=False)
    block = Block(RESULTS.to_batches()[0])
    done = JobDone(1, EMPTY, 0, (OutputBlock("o", 1_000, 0, 0, 999, 999, block),))
    with disk.failing(Fault.named("ENOSPC")):
        told = threading.Thread(target=node.before, args=(done,), daemon=True)
        told.start()
        told.join(10.0)
        assert not told.is_alive()
        brought = threading.Thread(target=node._resulted, args=(line, block), daemon=True)
        brought.start()
        brought.join(0.5)
        assert brought.is_alive(), "the thread of the jobs waits until there is room"
    brought.join(30.0)
    assert not in_memory(block)


def test_results_of_a_copy_that_its_log_takes_are_written_once(tmp_path: Path) -> None:
    node = copy_with_a_full_disk(tmp_path, logs_results=True)
    block = Block(RESULTS.to_batches()[0])
    node._resulted(Line.STABLE, block)
    assert in_memory(block)
    assert [list(each.iterdir()) for each in tmp_path.iterdir()] == [[], []]
