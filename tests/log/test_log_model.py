"""Whatever is done to a log, it gives back what a list of frames would."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.core.frame import Kind
from holdfast.frames import Frame
from holdfast.log import LogFull, Reader, StreamLog, TakeBack, Trimmed
from tests.log.helpers import SCHEMA, SMALL, Model, NoSync, View, drain, flat, kill, seen

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
counts = st.integers(1, 40)
times = st.integers(0, 60)


class LogMachine(RuleBasedStateMachine):
    """A log and a list side by side; readers that come and go, slow and fast."""

    @initialize(first_id=st.integers(0, 3))
    def begin(self, first_id: int) -> None:
        self.scratch = tempfile.TemporaryDirectory(dir=MEMORY)
        self.path = Path(self.scratch.name)
        self.model = Model(first_id)
        self.log = StreamLog.open(
            self.path, SCHEMA, options=SMALL, first_id=first_id, files=NoSync()
        )
        self.readers: list[tuple[Reader, View, int]] = []

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            self.scratch.cleanup()

    def append(self, frames: list[Frame]) -> None:
        self.log.append(frames)

    @rule(stimes=st.lists(times, min_size=1, max_size=30))
    def stable(self, stimes: list[int]) -> None:
        self.append(self.model.stable(len(stimes), stimes))

    @rule(stimes=st.lists(times, min_size=1, max_size=30))
    def tentative(self, stimes: list[int]) -> None:
        self.append(self.model.tentative(len(stimes), stimes))

    @rule(keep=st.integers(0, 40))
    def undo(self, keep: int) -> None:
        self.append(self.model.undo(keep))

    @rule(stime=times, repeat=st.integers(1, 5))
    def boundary(self, stime: int, repeat: int) -> None:
        for _ in range(repeat):
            self.append(self.model.boundary_mark(stime))

    @rule()
    def rec_done(self) -> None:
        self.append(self.model.rec_done())

    @rule()
    def window(self) -> None:
        self.append(self.model.window())

    @rule(lose_index=st.booleans(), clean=st.booleans())
    def reopen(self, lose_index: bool, clean: bool) -> None:
        self.forget_readers()
        if clean:
            self.log.close()
        else:
            kill(self.log)
        if lose_index:
            for path in self.path.glob("*.idx"):
                path.unlink()
        self.log = StreamLog.open(self.path, SCHEMA, options=SMALL, files=NoSync())
        assert self.log.cut is None

    @rule(share=st.floats(0, 1.1))
    def trim(self, share: float) -> None:
        below_id, before = int(self.model.stable_next_id * share), self.log.first_id
        self.log.trim(below_id)
        assert before <= self.log.first_id <= max(below_id, before)
        assert self.log.first_id <= self.model.stable_next_id

    @rule(share=st.floats(0, 1.2))
    def from_lsn(self, share: float) -> None:
        lsn = min(int(len(self.model.frames) * share), len(self.model.frames))
        if lsn < self.log.first_lsn:
            with pytest.raises(Trimmed):
                self.log.follow(from_lsn=lsn)
            return
        expected = list(enumerate(self.model.frames))[lsn:]
        assert seen(self.log.replay(from_lsn=lsn)) == expected
        got = seen(self.log.read_backwards(400, before_lsn=lsn))
        assert got == list(enumerate(self.model.frames))[self.log.first_lsn : lsn][::-1]

    @rule(back=st.integers(1, 80), windows=st.booleans())
    def from_ids(self, back: int, windows: bool) -> None:
        model = self.model
        edges = (model.next_id, model.stable_next_id, model.stable_next_id - back)
        for edge in edges:
            for from_id in (edge - 1, edge, edge + 1):
                self.check_from_id(max(from_id, 0), windows)

    def check_from_id(self, from_id: int, windows: bool) -> None:
        if from_id < self.log.first_id:
            with pytest.raises(Trimmed):
                self.log.follow(from_id=from_id)
            return
        expected = [
            (lsn, frame)
            for lsn, frame in self.model.standing()
            if frame.header.first_id >= from_id
            and lsn >= self.log.first_lsn
            and (windows or frame.kind is not Kind.WINDOW_CHECK)
        ]
        assert flat(self.log.replay(from_id=from_id, windows=windows)) == expected

    @rule(stime=times)
    def from_stime(self, stime: int) -> None:
        gone = [f for f in self.model.frames[: self.log.first_lsn] if f.kind is Kind.STABLE]
        if any(frame.header.stime_max >= stime for frame in gone):
            with pytest.raises(Trimmed, match="stime"):
                self.log.follow(from_stime=stime)
            return
        expected, found = [], False
        for lsn, frame in self.model.standing():
            if lsn < self.log.first_lsn or frame.kind is Kind.WINDOW_CHECK:
                continue
            far_enough = frame.header.stime_max >= stime and frame.kind is not Kind.REC_DONE
            found = found or (frame.kind.is_data and far_enough)
            if found or far_enough:
                expected.append((lsn, frame))
        assert flat(self.log.replay(from_stime=stime)) == expected

    @precondition(lambda self: len(self.readers) < 4)
    @rule(
        back=st.integers(0, 60),
        foreign=st.integers(0, 5),
        take_back=st.sampled_from(TakeBack),
    )
    def follow(self, back: int, foreign: int, take_back: TakeBack) -> None:
        from_id = max(self.model.stable_next_id - back, self.log.first_id)
        reader = self.log.follow(
            from_id=from_id, tentative_to=from_id + foreign, take_back=take_back
        )
        view = View({from_id + i: ("TENTATIVE", -1) for i in range(foreign)})
        self.readers.append((reader, view, from_id))

    @rule(which=st.integers(0, 3))
    def read_some(self, which: int) -> None:
        if which < len(self.readers):
            reader, view, _ = self.readers[which]
            with suppress(Trimmed):  # looked at when it catches up
                for entry in reader.read(timeout_s=0):
                    view.apply(entry.frame)

    def forget_readers(self) -> None:
        """Every reader, once it has read everything, holds what stands."""
        standing = self.model.view()
        for reader, view, from_id in self.readers:
            try:
                frames = drain(reader)
            except Trimmed:
                last = max(stable_part(view.tuples), default=from_id - 1)
                assert last + 1 < self.log.first_id
                continue
            for frame in frames:
                view.apply(frame)
            expected = {i: tuple_ for i, tuple_ in standing.items() if i >= from_id}
            if not stable_part(expected):  # nothing has corrected what it had from elsewhere
                view.tuples = {i: t for i, t in view.tuples.items() if t[1] != -1}
                assert view.tuples.items() >= expected.items()
            else:
                assert view.tuples == expected
            assert reader.behind == 0
            reader.close()
        self.readers.clear()

    @rule()
    def catch_up(self) -> None:
        self.forget_readers()

    @invariant()
    def says_where_it_is(self) -> None:
        if not hasattr(self, "log"):
            return
        log, model = self.log, self.model
        assert (log.next_id, log.stable_next_id) == (model.next_id, model.stable_next_id)
        assert log.last_boundary == model.boundary
        assert log.next_lsn == log.durable_lsn == len(model.frames)
        assert log.size_bytes == sum(s.end for s in log._store.segments)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

steps = st.lists(
    st.tuples(st.sampled_from(["stable", "tentative", "undo", "boundary_mark"]), counts),
    min_size=10,
    max_size=80,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=steps)
def test_a_full_log_loses_tentative_tuples_only(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        check_full_log(Path(name), steps)


def check_full_log(path: Path, steps: list[tuple[str, int]]) -> None:
    options = replace(SMALL, max_bytes=9000)
    model, refused = Model(), False
    with StreamLog.open(path, SCHEMA, options=options, files=NoSync()) as log:
        follower = log.follow(from_id=0)
        followed = View()
        for what, count in steps:
            attempt = Model(0, list(model.frames), salt=model.salt)
            attempt.next_id, attempt.stable_next_id = model.next_id, model.stable_next_id
            attempt.boundary = model.boundary
            frames: list[Frame] = getattr(attempt, what)(count)
            try:
                log.append(frames)
                model = attempt
            except LogFull:
                refused = True
                *sealed, last = log._store.segments
                assert all(segment.index.tentative_bytes == 0 for segment in sealed)
                assert last.index.tentative_bytes <= 2 * last.blocks_at
            assert log.size_bytes <= 9000
            assert (log.next_id, log.stable_next_id) == (model.next_id, model.stable_next_id)
            for entry in follower.read(timeout_s=0) if count % 2 else []:
                followed.apply(entry.frame)
        follower_frames = drain(follower)
    for frame in follower_frames:
        followed.apply(frame)
    assert stable_part(followed.tuples) == stable_part(model.view())
    assert followed.tuples.items() <= model.view().items()
    with StreamLog.open(path) as log:
        assert (log.next_id, log.last_boundary) == (model.next_id, model.boundary)
        kept = seen(log.replay(from_lsn=0))
        lost = [f for at, f in enumerate(model.frames) if at not in {lsn for lsn, _ in kept}]
        assert all(frame.kind is Kind.TENTATIVE for frame in lost)
        assert all(frame == model.frames[lsn] for lsn, frame in kept)
        view = View()
        for entry in log.replay(from_id=0):
            view.apply(entry.frame)
        assert stable_part(view.tuples) == stable_part(model.view())
        assert view.tuples.items() <= model.view().items()
    assume(refused or lost or len(steps) < 40)


def stable_part(tuples: dict[int, tuple[str, int]]) -> dict[int, tuple[str, int]]:
    return {i: t for i, t in tuples.items() if t[0] == "STABLE"}
