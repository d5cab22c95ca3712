"""What a process has in memory for lookups in long runs is bounded."""

from __future__ import annotations

import gc
import time

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import InputError
from holdfast.spark import lookup_memory
from holdfast.spark.hash_search import Directory, Sieve
from holdfast.spark.lookup_memory import (
    MOST_MIB,
    SETTING,
    VARIABLE,
    LookupMemory,
    lookup_memory_mib,
)
from holdfast.spark.open_runs import OpenRun, let_go

ROWS = 10_000
ONE = 2 * 8 * ROWS


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> LookupMemory:
    """Room for two runs."""
    made = LookupMemory(2 * ONE)
    monkeypatch.setattr(lookup_memory, "MEMORY", made)
    return made


def long_run() -> OpenRun:
    names = ("slot", "hash", "key", "value")
    return OpenRun(pa.table({name: np.arange(ROWS) for name in names}))


def has_beside(run: OpenRun) -> bool:
    return run.beside(("value",), ("key",)) is not None


def many_tasks() -> None:
    for _ in range(lookup_memory._OF_LATE + 1):
        let_go()


def test_a_run_for_which_there_is_no_room_goes_without(memory: LookupMemory) -> None:
    runs = [long_run() for _ in range(4)]
    assert [has_beside(run) for run in runs] == [True, True, False, False]
    assert memory.bytes == 2 * ONE
    # With every bucket the same: what one has is not taken from it for another.
    for _ in range(3):
        let_go()
        assert [has_beside(run) for run in runs] == [True, True, False, False]


def test_what_was_not_looked_at_for_longest_goes(memory: LookupMemory) -> None:
    runs = [long_run() for _ in range(3)]
    assert has_beside(runs[0])
    let_go()
    assert has_beside(runs[1])
    many_tasks()
    assert has_beside(runs[2])
    assert memory.bytes == 2 * ONE
    assert has_beside(runs[1])
    assert not has_beside(runs[0])
    # Once there is room again it has them again.
    del runs[1:]
    gc.collect()
    many_tasks()
    assert has_beside(runs[0])


def test_rows_side_by_side_go_before_directories_and_sieves(
    memory: LookupMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.spark.open_runs._MANY_ROWS", 1)
    first, second = long_run(), long_run()
    memory.most_bytes = Sieve.bytes(ROWS) + Directory.bytes(ROWS) + ONE
    first.sifted(first.hash)
    first.range_of(0)
    first.equal_hashes(0, ROWS, first.hash)
    let_go()
    assert has_beside(first)
    assert set(first._aids.held) == {"sieve", 0, ("value", "key")}
    many_tasks()
    assert has_beside(second)
    there = {name for name, aid in first._aids.held.items() if aid.bytes}
    assert there == {"sieve", 0}
    assert memory.bytes <= memory.most_bytes


def test_what_goes_with_its_run_leaves_its_room(memory: LookupMemory) -> None:
    runs = [long_run() for _ in range(2)]
    assert all(map(has_beside, runs))
    runs.clear()
    gc.collect()
    assert memory.bytes == 0


def test_without_any_room_there_is_none_of_it(memory: LookupMemory) -> None:
    memory.most_bytes = 0
    run = long_run()
    assert not has_beside(run)
    assert run.sifted(run.hash) is None
    assert run.equal_hashes(0, ROWS, np.array([5, -1, 7]))[1].tolist() == [5, 7]
    assert memory.bytes == 0


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 5_000])
def test_it_counts_what_there_is(count: int) -> None:
    hashes = np.arange(count)
    assert Directory(hashes)._starts.nbytes == Directory.bytes(count)
    assert Sieve(hashes)._is_there.nbytes == Sieve.bytes(count)


def test_the_setting_overrules_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert lookup_memory_mib({}) == MOST_MIB
    monkeypatch.setenv(VARIABLE, "64")
    assert lookup_memory_mib({}) == 64
    assert lookup_memory_mib({SETTING: "0"}) == 0
    with pytest.raises(InputError, match=r"holdfast.lookup_memory_mib must be .* it is '1g'"):
        lookup_memory_mib({SETTING: "1g"})
    monkeypatch.setenv(VARIABLE, "-1")
    with pytest.raises(InputError, match=r"HOLDFAST_LOOKUP_MEMORY_MIB must be .* it is '-1'"):
        lookup_memory_mib({})


def test_what_is_large_is_made_beside_the_tasks(
    memory: LookupMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_memory, "_LARGE_BYTES", ONE)
    run = long_run()
    with lookup_memory._making:  # others are being made
        assert not has_beside(run)
        assert not has_beside(run)
        assert memory.bytes == ONE  # there is room for it
    end = time.monotonic() + 30
    while not has_beside(run) and time.monotonic() < end:
        time.sleep(0.01)
    assert has_beside(run)
    assert memory.bytes == ONE


def test_what_cannot_be_made_leaves_its_room(
    memory: LookupMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> object:
        raise MemoryError

    monkeypatch.setattr(lookup_memory, "_LARGE_BYTES", ONE)
    run = long_run()
    assert run._aids.get("large", ONE, fails) is None
    end = time.monotonic() + 30
    while memory.bytes and time.monotonic() < end:
        time.sleep(0.01)
    assert memory.bytes == 0
