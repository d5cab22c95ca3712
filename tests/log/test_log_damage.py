"""Damage: bits that flip, files that go missing, and what can be done about it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.frames import Frame
from holdfast.log import (
    DamagedLog,
    Entry,
    LogError,
    LogOptions,
    StreamLog,
    cursor,
    inspect,
    recovery,
    repair,
)
from holdfast.log.files import Files
from holdfast.log.recovery import Examined
from tests.log.helpers import SCHEMA, SMALL, Model, NoSync, drain, kill, seen, stable, window_frame


def small_log(path: Path, options: LogOptions = SMALL, *, commits: int = 9) -> Model:
    """A log of a few segments, each append a commit of its own, closed."""
    model = Model()
    with StreamLog.open(path, SCHEMA, options=options) as log:
        for count in range(1, commits + 1):
            log.append(model.stable(count) + model.boundary_mark(count))
    return model


def read_everything(path: Path) -> tuple[list[tuple[int, Frame]], DamagedLog | None]:
    """What can be read, and what stopped it."""
    entries: list[Entry] = []
    try:
        with StreamLog.open(path, read_only=True) as log:
            entries.extend(log.replay(from_lsn=0))
    except DamagedLog as damage:
        return seen(entries), damage
    return seen(entries), None


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << at % 8
    path.write_bytes(data)


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.thorough)])
def test_every_bit_flip_in_a_closed_log_is_found(memory_path: Path, step: int) -> None:
    options = replace(SMALL, segment_bytes=1200)
    model = small_log(memory_path, options, commits=4)
    expected = list(enumerate(model.frames))
    files = sorted(memory_path.glob("*.seg")) + sorted(memory_path.glob("*.idx"))
    assert len(files) >= 4
    for path in files:
        good, outcomes = path.read_bytes(), set()
        for at in range(0, len(good), step):
            flip(path, at)
            got, damage = read_everything(memory_path)
            if damage is None:
                assert got == expected, f"{path.name} byte {at}"
            else:
                assert damage.path == path
                assert damage.offset <= at
            outcomes.add("found" if damage else "harmless")
            path.write_bytes(good)
        # An index file is only a copy; every byte of a segment counts.
        assert outcomes == {"found" if path.suffix == ".seg" else "harmless"}
    with StreamLog.open(memory_path, options=options) as log:
        assert seen(log.replay(from_lsn=0)) == expected


def test_reading_ahead_finds_the_same_damage_and_delivers_all_before_it(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(SMALL, segment_bytes=1 << 16)
    small_log(memory_path, options, commits=24)
    (path,) = memory_path.glob("*.seg")
    good = path.read_bytes()
    for at in range(600, len(good), 389):
        flip(path, at)
        monkeypatch.setattr(cursor, "AHEAD_BYTES", 1 << 30)
        by_itself = read_everything(memory_path)
        monkeypatch.setattr(cursor, "AHEAD_BYTES", 700)
        ahead = read_everything(memory_path)
        assert ahead[0] == by_itself[0]
        assert str(ahead[1]) == str(by_itself[1])
        assert ahead[1] is not None
        path.write_bytes(good)


def test_a_bit_flip_after_a_crash_never_shows_anything_that_was_not_written(
    memory_path: Path,
) -> None:
    model, path = Model(), memory_path / "log"
    log = StreamLog.open(path, SCHEMA, options=replace(SMALL, preallocate_bytes=0))
    ends = []
    for count in range(1, 4):
        log.append(model.stable(count) + model.boundary_mark(count))
        ends.append(log._store.segments[-1].end)
    kill(log)
    (segment,) = path.glob("*.seg")
    good = segment.read_bytes()
    for at in range(len(good)):
        flip(segment, at)
        got, damage = read_everything(path)
        assert got == list(enumerate(model.frames))[: len(got)]
        # Damage to the last commit looks like a torn tail; all before it is vouched for.
        assert (damage is None) == (at >= ends[-2])
        assert damage is None or damage.offset <= at
        assert len(got) >= 4 or damage is not None
        segment.write_bytes(good)


def test_damage_in_the_middle_names_file_and_offset_and_leaves_the_rest(tmp_path: Path) -> None:
    model = small_log(tmp_path)
    segments = sorted(tmp_path.glob("*.seg"))
    middle = segments[1]
    flip(middle, 1000)
    with StreamLog.open(tmp_path, options=SMALL) as log:
        good: list[Entry] = []
        with log.replay(from_id=0) as reader, pytest.raises(DamagedLog) as raised:
            good.extend(reader)
        error = raised.value
        assert error.path == middle
        assert 0 < error.offset <= 1000
        for words in (str(middle), f"byte {error.offset}", "good copy", "trim past", "repair"):
            assert words in str(error)
        first_lsn = int(middle.stem)
        assert len(seen(good)) > 0
        assert good[-1].lsn < int(segments[2].stem)
        # The log goes on, and so do readers after the damage.
        log.append(model.stable(2))
        after = [e.frame for e in log.replay(from_lsn=int(segments[2].stem))]
        assert after == model.frames[int(segments[2].stem) :]
        with pytest.raises(DamagedLog):
            list(log.read_backwards())
        assert first_lsn > 0


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("where", ["header", "block"])
def test_repair_cuts_at_the_damage_and_keeps_the_rest_aside(
    tmp_path: Path, which: int, where: str
) -> None:
    model = small_log(tmp_path)
    segments = sorted(tmp_path.glob("*.seg"))
    damaged = segments[which]
    flip(damaged, 3 if where == "header" else 700)
    assert not inspect(tmp_path).is_intact
    done = repair(tmp_path)
    assert done is not None
    assert done.path == damaged
    assert (done.offset == 0) == (where == "header")
    assert all(path.exists() for path in done.set_aside)
    assert len(done.set_aside) == len(segments[segments.index(damaged) :])
    assert repair(tmp_path) is None if tuple(tmp_path.glob("*.seg")) else True
    with StreamLog.open(tmp_path, SCHEMA, options=SMALL) as log:
        kept = seen(log.replay(from_lsn=0))
        assert kept == list(enumerate(model.frames))[: len(kept)]
        again = Model()
        again.add([frame for _, frame in kept])
        assert log.next_id == again.next_id
        log.append(again.stable(3))
        assert [e.frame for e in log.replay(from_lsn=0)] == again.frames


def test_an_intact_log_needs_no_repair(tmp_path: Path) -> None:
    small_log(tmp_path)
    assert repair(tmp_path) is None
    with pytest.raises(LogError, match="no log here"):
        inspect(tmp_path / "elsewhere")


@pytest.mark.parametrize("remove", ["missing", "garbage", "stale", "cut"])
def test_index_files_are_made_again(tmp_path: Path, remove: str) -> None:
    model = small_log(tmp_path)
    indexes = sorted(tmp_path.glob("*.idx"))
    assert len(indexes) > 2
    for at, path in enumerate(indexes):
        if remove == "missing":
            path.unlink()
        elif remove == "garbage":
            path.write_bytes(b"no index at all")
        elif remove == "cut":
            path.write_bytes(path.read_bytes()[:-8])
        else:  # of another segment
            path.write_bytes(indexes[at - 1].read_bytes())
    with StreamLog.open(tmp_path, options=SMALL) as log:
        assert seen(log.replay(from_lsn=0)) == list(enumerate(model.frames))
        for tuple_id in range(model.next_id):
            first = next(iter(log.replay(from_id=tuple_id)))
            assert first.frame.header.first_id == tuple_id


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_missing_segment(tmp_path: Path, which: int) -> None:
    small_log(tmp_path)
    segments = sorted(tmp_path.glob("*.seg"))
    segments[which].unlink()
    if which == 0:  # as after trimming
        with StreamLog.open(tmp_path, options=SMALL) as log:
            assert log.first_lsn == int(segments[1].stem)
        return
    with pytest.raises(DamagedLog, match="are missing"):
        StreamLog.open(tmp_path, options=SMALL)
    with StreamLog.open(tmp_path, read_only=True) as log:
        with pytest.raises(DamagedLog, match="are missing"):
            list(log.replay(from_lsn=0))
        with log.replay(from_lsn=0) as reader, pytest.raises(DamagedLog, match="are missing"):
            drain(reader)


def test_a_segment_of_another_log_or_version_is_refused(tmp_path: Path) -> None:
    small_log(tmp_path / "one")
    small_log(tmp_path / "two")
    second = sorted((tmp_path / "one").glob("*.seg"))[1].name
    shutil.copy(tmp_path / "two" / second, tmp_path / "one" / second)
    with pytest.raises(DamagedLog, match="another log"):
        StreamLog.open(tmp_path / "one")
    first = min((tmp_path / "two").glob("*.seg"))
    first.write_bytes(b"HFS9" + first.read_bytes()[4:])
    with pytest.raises(DamagedLog, match="HFS9"):
        StreamLog.open(tmp_path / "two")


def test_a_file_cut_short_is_damage_not_a_torn_tail(tmp_path: Path) -> None:
    small_log(tmp_path)
    last = max(tmp_path.glob("*.seg"))
    for size in (last.stat().st_size - 64, last.stat().st_size - 100):
        last.write_bytes(last.read_bytes()[:size])
        with pytest.raises(DamagedLog):
            StreamLog.open(tmp_path)


def test_inspect_says_what_is_there(tmp_path: Path) -> None:
    model = small_log(tmp_path)
    summary = inspect(tmp_path)
    assert summary.is_intact
    assert summary.torn_tail is None
    assert summary.schema == SCHEMA
    assert summary.tail is not None
    assert summary.tail.next_id == model.next_id
    assert summary.contents.frames.total() == len(model.frames)
    assert summary.contents.frames["BOUNDARY"] == 9
    assert summary.contents.tuples["STABLE"] == 45
    assert (summary.contents.first_id, summary.contents.next_id) == (0, model.next_id)
    stimes = [f.header.stime_max for f in model.frames if f.kind.is_data]
    assert summary.contents.stime_max == max(stimes)
    assert summary.size_bytes == sum(p.stat().st_size for p in tmp_path.glob("*.seg"))
    assert all(segment.has_index for segment in summary.segments)
    with StreamLog.open(tmp_path, files=NoSync()) as log:  # also while it is in use
        log.append([*model.stable(1), window_frame(model.next_id, "a")])
        assert inspect(tmp_path).contents.frames["WINDOW_CHECK"] == 1
    flip(tmp_path / summary.segments[1].path.name, 900)
    flip(tmp_path / summary.segments[2].path.name, 900)
    assert len(inspect(tmp_path).damage) == 2


def test_a_torn_tail_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = StreamLog.open(tmp_path, SCHEMA)
    log.append(stable(0))
    kill(log)
    (segment,) = tmp_path.glob("*.seg")
    end = log._store.segments[-1].end
    segment.write_bytes(segment.read_bytes()[:end] + b"HFB1 and then the power went")
    torn = inspect(tmp_path).torn_tail
    assert torn is not None
    assert (torn.path, torn.offset, torn.dropped_bytes) == (segment, end, 28)
    with StreamLog.open(tmp_path) as log:
        assert log.cut == torn
        assert "torn tail" in caplog.text
        log.append(stable(1))
    with StreamLog.open(tmp_path) as log:
        assert (log.cut, log.next_id) == (None, 2)


def test_a_log_that_is_written_faster_than_it_is_looked_at_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: Iterator[int] = itertools.count(100, 100)

    def examine(*arguments: object) -> Examined:
        damage = DamagedLog(tmp_path / "0.seg", next(places), "expected a block")
        return Examined(damage=damage)

    monkeypatch.setattr(recovery, "examine", examine)
    assert recovery.examine_in_use(Files(), tmp_path, 4096).damage is None
    # One that stays where it is, is.
    places = itertools.repeat(700)
    assert recovery.examine_in_use(Files(), tmp_path, 4096).damage is not None
