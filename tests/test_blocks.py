"""Blocks in memory and in a log."""

from __future__ import annotations

import gc
import threading

import pyarrow as pa

from holdfast.blocks import Block, Memory
from tests.blocks_for_tests import in_memory

ROWS = 1_000


def batch(number: int) -> pa.RecordBatch:
    return pa.record_batch({"number": pa.array([number] * ROWS, pa.int64())})


def loadable(number: int) -> Block:
    block = Block(batch(number))
    block.can_load(lambda: batch(number))
    return block


def test_the_oldest_go_from_memory_and_can_be_read_again() -> None:
    blocks = [loadable(number) for number in range(5)]
    memory = Memory(3 * blocks[0].nbytes)
    for block in blocks:
        memory.add(block)
    assert [in_memory(block) for block in blocks] == [False, False, True, True, True]
    assert [block.batch()["number"][0].as_py() for block in blocks] == [0, 1, 2, 3, 4]
    assert memory.size_bytes == 3 * blocks[0].nbytes


def test_what_nobody_asks_for_any_more_takes_no_room() -> None:
    kept, dropped = loadable(0), [loadable(number) for number in range(1, 4)]
    memory = Memory(3 * kept.nbytes)
    memory.add(kept)
    while dropped:
        memory.add(dropped[-1])
        dropped.pop()
    gc.collect()
    assert memory.size_bytes == kept.nbytes
    newer = [loadable(number) for number in range(4, 6)]
    for block in newer:
        memory.add(block)
    assert in_memory(kept)


def test_blocks_may_go_while_others_come() -> None:
    memory = Memory(10 * loadable(0).nbytes)

    def come_and_go() -> None:
        for number in range(300):
            memory.add(loadable(number))

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
        assert not thread.is_alive()
    gc.collect()
    assert memory.size_bytes == 0
