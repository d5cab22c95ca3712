"""Whatever is done to a log, it gives back what a list of frames would."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.core.frame import Kind
from holdfast.frames import Frame
from holdfast.log import StreamLog, Trimmed
from tests.log.helpers import SCHEMA, SMALL, Model, NoSync, flat, kill, one_by_one, seen

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
times = st.integers(0, 60)


class LogMachine(RuleBasedStateMachine):
    """A log and a list side by side."""

    @initialize()
    def begin(self) -> None:
        self.scratch = tempfile.TemporaryDirectory(dir=MEMORY)
        self.path = Path(self.scratch.name)
        self.model = Model()
        self.log = StreamLog.open(self.path, SCHEMA, options=SMALL, files=NoSync())

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            self.scratch.cleanup()

    def append(self, frames: list[Frame]) -> None:
        self.log.append(frames)

    @rule(stimes=st.lists(times, min_size=1, max_size=30))
    def stable(self, stimes: list[int]) -> None:
        self.append(self.model.stable(len(stimes), stimes))

    @rule(stime=times, repeat=st.integers(1, 5))
    def boundary(self, stime: int, repeat: int) -> None:
        for _ in range(repeat):
            self.append(self.model.boundary_mark(stime))

    @rule()
    def window(self) -> None:
        self.append(self.model.window())

    @rule(lose_index=st.booleans(), clean=st.booleans())
    def reopen(self, lose_index: bool, clean: bool) -> None:
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
        below_id, before = int(self.model.next_id * share), self.log.first_id
        self.log.trim(below_id)
        assert before <= self.log.first_id <= max(below_id, before)
        assert self.log.first_id <= self.model.next_id

    @rule(share=st.floats(0, 1.2))
    def from_lsn(self, share: float) -> None:
        lsn = min(int(len(self.model.frames) * share), len(self.model.frames))
        if lsn < self.log.first_lsn:
            with pytest.raises(Trimmed):
                self.log.replay(from_lsn=lsn)
            return
        expected = list(enumerate(self.model.frames))[lsn:]
        assert seen(self.log.replay(from_lsn=lsn)) == expected
        backwards = list(enumerate(self.model.frames))[self.log.first_lsn :][::-1]
        assert seen(self.log.read_backwards(400)) == backwards

    @rule(back=st.integers(1, 80))
    def from_ids(self, back: int) -> None:
        for edge in (self.model.next_id, self.model.next_id - back):
            for from_id in (edge - 1, edge, edge + 1):
                self.check_from_id(max(from_id, 0))

    def check_from_id(self, from_id: int) -> None:
        if from_id < self.log.first_id:
            with pytest.raises(Trimmed):
                self.log.replay(from_id=from_id)
            return
        expected = [
            (lsn, part)
            for lsn, frame in enumerate(self.model.frames)
            for part in one_by_one(frame)
            if part.header.first_id >= from_id
            and lsn >= self.log.first_lsn
            and part.kind is not Kind.WINDOW_CHECK
        ]
        assert flat(self.log.replay(from_id=from_id)) == expected

    @rule()
    def headers(self) -> None:
        expected = [frame.header for frame in self.model.frames[self.log.first_lsn :]]
        assert [header for header, _ in self.log.headers()] == expected

    @invariant()
    def says_where_it_is(self) -> None:
        if not hasattr(self, "log"):
            return
        log, model = self.log, self.model
        assert log.next_id == model.next_id
        assert log.last_boundary == model.boundary
        assert log.next_lsn == log.durable_lsn == len(model.frames)
        assert log.size_bytes == sum(s.end for s in log._store.segments)


TestLogMachine = LogMachine.TestCase
TestLogMachine.pytestmark = [pytest.mark.slow]  # type: ignore[attr-defined]
TestLogMachine.settings = settings(
    max_examples=15 * int(os.environ.get("HOLDFAST_EXAMPLES", "2")),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
