"""The disk of a process: what a crash leaves, and what is made of it."""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast import disk
from holdfast.blocks import Block, Loader
from holdfast.core.effects import Append, TrimLog
from holdfast.core.events import Appended, Event, RecoveryRecord
from holdfast.core.frame import Header, Kind
from holdfast.core.messages import StreamFrame
from holdfast.disk import Fault
from holdfast.errors import StateError
from holdfast.frames import TIME, Frame, data_frame, stream_schema
from holdfast.kept.ledger import Ledger, LedgerLine
from holdfast.kept.stream_store import StreamStore
from holdfast.log import LogOptions, StreamLog, Trimmed, reader
from holdfast.log.block import LogBlock
from holdfast.log.payload import decode
from holdfast.nodes.spill import Spill
from tests.blocks_for_tests import boundary_frame, in_memory

SCHEMA = stream_schema(pa.schema([("number", pa.int64())]))
SECONDS = 60.0


def batch(first: int, count: int) -> pa.RecordBatch:
    times = pa.array(range(first, first + count)).cast(TIME)
    return pa.record_batch([times, times, pa.array(range(first, first + count))], schema=SCHEMA)


def stable(first: int, count: int) -> StreamFrame:
    frame = data_frame(Kind.STABLE, first, batch(first, count))
    return StreamFrame(frame.header, Block(frame.batch))


def mark(next_id: int, stime: int) -> StreamFrame:
    return StreamFrame(Header(Kind.BOUNDARY, next_id, 0, stime, stime, stime))


def opened(directory: Path, events: queue.Queue[Event] | None = None) -> StreamStore:
    post = (events or queue.Queue()).put
    return StreamStore(directory, {"s": SCHEMA}, LogOptions(), post)


def append(store: StreamStore, events: queue.Queue[Event], *frames: StreamFrame) -> None:
    store.put(Append(1, (("s", frames),)))
    assert events.get(timeout=10.0) == Appended(1)


def torn_log(directory: Path) -> None:
    """Tuples 0 to 9 with their boundary, and 10 to 14 whose boundary a crash cut off."""
    with StreamLog.open(directory / "s", SCHEMA) as log:
        log.append([data_frame(Kind.STABLE, 0, batch(0, 10)), boundary_frame(10, 10)])
        log.append(data_frame(Kind.STABLE, 10, batch(10, 5)))


def test_an_entry_point_completes_what_a_crash_cut_off(tmp_path: Path) -> None:
    torn_log(tmp_path)
    store = opened(tmp_path)
    logged = store.logged("s", complete=True)
    store.close()
    assert [frame.header.kind for frame in logged.frames] == [
        Kind.STABLE,
        Kind.BOUNDARY,
        Kind.STABLE,
        Kind.BOUNDARY,
    ]
    last = logged.frames[-1].header
    assert (last.first_id, last.stime_min) == (15, 10)


def test_a_restart_decodes_nothing_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torn_log(tmp_path)
    decoded: list[int] = []

    def counting(block: LogBlock, written: pa.Schema, schema: pa.Schema) -> Frame:
        decoded.append(block.first_id)
        return decode(block, written, schema)

    monkeypatch.setattr(reader, "decode", counting)
    store = opened(tmp_path)
    logged = store.logged("s", complete=True)
    assert decoded == []
    frame = logged.frames[2]
    assert isinstance(frame.block, Block)
    assert not in_memory(frame.block)
    assert frame.block.nbytes >= frame.block.batch().nbytes
    assert frame.block.batch()["number"].to_pylist() == list(range(10, 15))
    assert 10 in decoded
    store.close()


def test_a_replica_does_not_write_twice_what_it_computes_again(tmp_path: Path) -> None:
    torn_log(tmp_path)
    events: queue.Queue[Event] = queue.Queue()
    store = opened(tmp_path, events)
    store.logged("s", complete=False)
    store.start()
    append(store, events, stable(10, 8), mark(18, 18))
    store.close()
    with StreamLog.open(tmp_path / "s", read_only=True) as log:
        first_ids, found = [], []
        for _, frame in log.replay(from_id=0):
            if frame.batch is not None:
                first_ids.append(frame.header.first_id)
                found += frame.batch["number"].to_pylist()
    assert found == list(range(18))
    assert first_ids == [0, 10, 15]


def test_blocks_that_left_the_memory_are_read_from_the_log(tmp_path: Path) -> None:
    events: queue.Queue[Event] = queue.Queue()
    store = opened(tmp_path, events)
    store.start()
    frame = stable(0, 100)
    append(store, events, frame, mark(100, 100))
    block = frame.block
    assert isinstance(block, Block)
    block.forget()
    assert not in_memory(block)
    assert block.batch()["number"].to_pylist() == list(range(100))
    store.close()


def test_blocks_are_read_in_any_order_also_while_the_log_grows(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path / "s", SCHEMA) as log:
        loader = Loader(log)
        for first in range(0, 100, 7):
            log.append(data_frame(Kind.STABLE, first, batch(first, 7)))
            assert loader.load(first, 7)["number"].to_pylist() == list(range(first, first + 7))
        for first, count in ((0, 7), (7, 7), (50, 20), (70, 3), (3, 90), (93, 1), (0, 105)):
            found = loader.load(first, count)["number"].to_pylist()
            assert found == list(range(first, first + count))
        with pytest.raises(Trimmed, match="only 5"):
            loader.load(100, 10)
        loader.close()


def test_received_blocks_beyond_the_limit_wait_on_disk(tmp_path: Path) -> None:
    one = batch(0, 100).nbytes
    spill = Spill(tmp_path / "received", lambda key, text: None, limit_bytes=2 * one)
    blocks = [Block(batch(first, 100)) for first in range(0, 500, 100)]
    for block in blocks:
        spill.take(block)
    assert [in_memory(block) for block in blocks] == [True, True, False, False, False]
    for first, block in zip(range(0, 500, 100), blocks, strict=True):
        assert block.batch()["number"].to_pylist() == list(range(first, first + 100))
    assert len(list((tmp_path / "received").iterdir())) == 3
    del block, blocks
    assert list((tmp_path / "received").iterdir()) == []
    assert spill.memory_bytes == 0


def test_without_room_on_disk_whoever_brings_a_block_waits(tmp_path: Path) -> None:
    one = batch(0, 100).nbytes
    told: list[str | None] = []
    spill = Spill(tmp_path / "received", lambda key, text: told.append(text), limit_bytes=2 * one)
    blocks = [Block(batch(first, 100)) for first in range(0, 500, 100)]
    for block in blocks[:3]:
        spill.take(block)

    def brought(block: Block) -> threading.Thread:
        before = len(told)
        thread = threading.Thread(target=spill.take, args=(block,), daemon=True)
        thread.start()
        while len(told) == before:
            time.sleep(0.01)
        return thread

    with disk.failing(Fault.named("ENOSPC", "*/received/*")):
        # Until a block that is in memory is let go of,
        waiting = brought(blocks[3])
        assert "No more are taken" in str(told[-1])
        assert waiting.is_alive()
        blocks[0] = blocks[1]
        waiting.join(SECONDS)
        assert told[-1] is None
        # or until there is room.
        waiting = brought(blocks[4])
    waiting.join(SECONDS)
    assert told[-1] is None
    assert [in_memory(block) for block in blocks[2:]] == [False, True, False]
    for first, block in zip(range(200, 500, 100), blocks[2:], strict=True):
        assert block.batch()["number"].to_pylist() == list(range(first, first + 100))
    assert len(list((tmp_path / "received").iterdir())) == 2


def test_blocks_that_a_log_has_make_room_for_others(tmp_path: Path) -> None:
    one = batch(0, 100).nbytes
    spill = Spill(tmp_path / "queued", lambda key, text: None, limit_bytes=2 * one)
    blocks = [Block(batch(first, 100)) for first in range(0, 300, 100)]
    for block in blocks[:2]:
        spill.take(block)
    blocks[0].can_load(lambda: batch(0, 100))
    spill.take(blocks[2])
    assert list((tmp_path / "queued").iterdir()) == []
    assert spill.memory_bytes == 2 * one
    del block, blocks
    assert spill.memory_bytes == 0


def test_nobody_waits_for_room_when_the_node_stops(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "received", lambda key, text: None, limit_bytes=1)
    with disk.failing(Fault.named("EIO")):
        waiting = threading.Thread(target=spill.take, args=(Block(batch(0, 100)),), daemon=True)
        waiting.start()
        spill.close()
        waiting.join(SECONDS)
    assert not waiting.is_alive()


# -- the ledger -------------------------------------------------------------------------


def line(first_id: int, count: int, **more: Any) -> LedgerLine:
    return LedgerLine(first_id, count, {"next_id": first_id + count}, **more)


def test_only_lines_whose_tuples_are_in_the_log_count(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, 0)
    ledger.add([line(0, 10, producer="p", sequence=1, tuples=10)])
    ledger.add([line(10, 5, producer="q", sequence=1, tuples=5)])
    ledger.add([line(15, 5, producer="p", sequence=2, tuples=15)])
    ledger.close()
    with path.open("ab") as file:
        file.write(b'{"first_id": 20, "cou')  # torn
    again = Ledger(path, 15)
    assert again.standing.save == {"next_id": 15}
    places = {name: place.sequence for name, place in again.standing.producers.items()}
    assert places == {"p": 1, "q": 1}
    again.close()
    third = Ledger(path, 15)
    assert third.standing == again.standing
    third.close()


def test_a_ledger_that_is_not_the_log_s_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, 0)
    ledger.add([line(0, 10)])
    ledger.close()
    with pytest.raises(StateError, match="the log beside it is at 12"):
        Ledger(path, 12)


def test_a_log_that_was_cut_does_not_leave_a_hole(tmp_path: Path) -> None:
    torn_log(tmp_path)
    store = opened(tmp_path)
    store.check_reaches({"s": 15}, tmp_path / "state")
    cut = rf"{tmp_path / 's'}: the log ends before tuple 15, but the state in .* with tuple 16"
    with pytest.raises(StateError, match=cut):
        store.check_reaches({"s": 16}, tmp_path / "state")
    store.close()


def test_window_states_stay_as_long_as_the_record_needs_them(tmp_path: Path) -> None:
    events: queue.Queue[Event] = queue.Queue()
    options = LogOptions(segment_bytes=4096, preallocate_bytes=0)
    store = StreamStore(tmp_path, {"s": SCHEMA}, options, events.put)
    store.start()
    states = pa.record_batch({"slot": pa.array(range(20))})
    for number in range(1, 31):
        time = number * 10
        window = Header(Kind.WINDOW_CHECK, time, 20, time, time, time)
        frames = (stable(time - 10, 10), mark(time, time), StreamFrame(window, Block(states)))
        # The record needs the states of the last ten steps.
        record = RecoveryRecord(time, time, (), (), extent=time - 90)
        store.put(Append(number, (("s", frames),), record))
        assert events.get(timeout=10.0) == Appended(number)
        store.put(TrimLog("s", time, windows_from=record.extent))
    store.close()
    with StreamLog.open(tmp_path / "s", read_only=True) as log:
        kept = [entry.frame.header for entry in log.read_backwards(kinds={Kind.WINDOW_CHECK})]
        # All that is needed, and, because whole segments go, a little more.
        assert [header.stime_min for header in kept][:10] == list(range(300, 200, -10))
        assert len(kept) < 20
        # Whoever reads the stream sees nothing of it.
        with log.replay(from_id=log.first_id) as reader:
            kinds = {frame.kind for _, frame in reader}
    assert kinds <= {Kind.STABLE, Kind.BOUNDARY}


def test_a_gap_whose_tuples_never_came_is_not_where_the_stream_is(tmp_path: Path) -> None:
    """The disk was full, or the process was killed, right after the log had skipped."""
    with StreamLog.open(tmp_path / "s", SCHEMA) as log:
        log.append([data_frame(Kind.STABLE, 0, batch(0, 10)), boundary_frame(10, 10)])
        log.skip_to(40)
    store = opened(tmp_path)
    # Ids from 40 on are known to be elsewhere, but not when they begin: the record says more.
    assert store.logged("s", complete=False).frames == ()
    store.close()
    with StreamLog.open(tmp_path / "s", SCHEMA) as log:
        log.append([data_frame(Kind.STABLE, 40, batch(40, 5)), boundary_frame(45, 45)])
    store = opened(tmp_path)
    logged = store.logged("s", complete=False)
    store.close()
    assert logged.first_id == 40
    assert [frame.header.kind for frame in logged.frames] == [Kind.STABLE, Kind.BOUNDARY]
