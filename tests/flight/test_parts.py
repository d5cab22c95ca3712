"""Feeds that carry only a shard's tuples: nothing that is counted by ids and times notices."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from holdfast.blocks import Block
from holdfast.core.effects import InputSlice
from holdfast.core.frame import Header, Kind
from holdfast.core.messages import FeedFrames, Part, StreamFrame
from holdfast.flight.feeds import Feeds
from holdfast.flight.parts import cut, fits, is_part, part_schema
from holdfast.frames import SEQ, STIME, TMAX
from holdfast.nodes.jobs import input_tables
from holdfast.slots import ANY, SLOTS, Share, wrong_part
from tests.flight.test_feeds import Call

STREAM = pa.schema([STIME, TMAX, pa.field("k", pa.string()), pa.field("n", pa.int64())])
TABLE = pa.schema([STIME, TMAX, SEQ, *list(STREAM)[2:]])
KEYS = ["a", "b", "", None, "ключ", "d"]


def frame(first_id: int, count: int) -> StreamFrame:
    times = np.arange(first_id, first_id + count) * 10
    columns = {
        "stime": times,
        "tmax": times,
        "k": [KEYS[each % len(KEYS)] for each in range(first_id, first_id + count)],
        "n": np.arange(first_id, first_id + count) * 3,
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in STREAM]
    batch = pa.record_batch(arrays, schema=STREAM)
    low, high = int(times[0]), int(times[-1])
    return StreamFrame(Header(Kind.STABLE, first_id, count, low, high, high), Block(batch))


def parts(shards: int, columns: tuple[str, ...]) -> list[Part]:
    edges = [each * SLOTS // shards for each in range(shards + 1)]
    return [Part(first, end, columns) for first, end in pairwise(edges)]


def table(frames: list[StreamFrame], skip: int, part: Part | None = None) -> pa.Table | None:
    """What a job gets of a block: rows ``skip`` on, of the times from 50 to 950."""
    header = Header(
        Kind.STABLE, frames[0].header.first_id, sum(one.header.count for one in frames),
        frames[0].header.stime_min, frames[-1].header.stime_max,
    )  # fmt: skip
    if part is None:
        batches = [one.block.batch() for one in frames if isinstance(one.block, Block)]
        batch = pa.concat_batches(batches)
    else:
        batch = cut(frames, part)
        assert batch is not None
        assert batch.schema == part_schema(STREAM)
    assert fits(header, batch)
    piece = InputSlice("s", header, Block(batch), skip, 50, 950)
    share = None if part is None else Share({"s": part})
    return input_tables([piece], {"s": TABLE}, share).get("s")


@pytest.mark.parametrize("columns", [("k",), ("n", "k"), ANY], ids=str)
@pytest.mark.parametrize("skip", [0, 7, 33])
def test_the_parts_of_a_run_of_frames_are_all_of_it(columns: tuple[str, ...], skip: int) -> None:
    frames = [frame(0, 30), frame(30, 1), frame(31, 80)]
    whole = table(frames, skip)
    assert whole is not None
    found = [table(frames, skip, part) for part in parts(3, columns)]
    taken = pa.concat_tables([each for each in found if each is not None]).sort_by("seq")
    assert taken.combine_chunks().equals(whole.combine_chunks())
    assert sum(each is not None for each in found) > 1


def test_who_is_sent_everything_takes_the_same_part() -> None:
    frames = [frame(0, 111)]
    block = frames[0].block
    piece = InputSlice("s", frames[0].header, block, 0, 50, 950)
    for part in parts(4, ("k",)):
        cut_there = table(frames, 0, part)
        cut_here = input_tables([piece], {"s": TABLE}, Share({"s": part}))["s"]
        rows = 0 if cut_there is None else cut_there.num_rows
        assert cut_here.num_rows == rows
        assert cut_there is None or cut_here.equals(cut_there)


def test_blocks_that_cannot_be_parts_of_their_frames_are_seen() -> None:
    one = frame(5, 10)
    part = parts(1, ("k",))[0]
    batch = cut([one], part)
    assert batch is not None
    assert is_part(batch)
    assert fits(one.header, batch)
    assert not fits(Header(Kind.STABLE, 5, 9, 50, 140, 140), batch)  # a position behind the end
    assert not fits(one.header, batch.take(pa.array([1, 0])))
    assert not fits(Header(Kind.BOUNDARY, 5, 0, 50, 50), batch)
    assert fits(Header(Kind.BOUNDARY, 5, 0, 50, 50), None)
    assert not fits(one.header, None)
    renamed = batch.rename_columns([*STREAM.names, "other"])
    assert not fits(one.header, renamed.replace_schema_metadata(batch.schema.metadata))


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (Part(0, SLOTS + 1, ("k",)), "slots are from 0 to 1024"),
        (Part(5, 4, ("k",)), "not from 5 to 4"),
        (Part(0, 4, ("x",)), "there is no column 'x'"),
        (Part(0, 4, ("d",)), "'d' is decimal128"),
    ],
)
def test_parts_that_cannot_be_are_refused(part: Part, message: str) -> None:
    wrong = wrong_part(part, STREAM.append(pa.field("d", pa.decimal128(9, 2))))
    assert wrong is not None
    assert message in wrong
    assert wrong_part(Part(0, 4, ("k", "seq")), STREAM) is None


def test_what_is_counted_is_what_goes_out() -> None:
    counted: list[tuple[str, Kind, int]] = []
    found = Feeds(
        "p", count=lambda stream, to, kind, tuples, size: counted.append((to, kind, tuples))
    )
    frames = (frame(0, 60), frame(60, 40))
    mark = StreamFrame(Header(Kind.BOUNDARY, 100, 0, 1_000, 1_000, 1_000))
    for name, part in (("whole", None), *zip("ab", parts(2, ("k",)), strict=True)):
        feed = found.open(name, 5, STREAM, part)
        assert found.deliver(name, FeedFrames(5, 0, (*frames, mark)))
        batches = feed.batches(Call())
        assert [next(batches)[0].num_rows for _ in range(2)][1] == 0
    sent = {name: tuples for name, _, tuples in counted}
    assert sent["whole"] == 100
    assert 0 < sent["a"] < 100
    assert sent["a"] + sent["b"] == 100
    assert {kind for _, kind, _ in counted} == {Kind.STABLE}
