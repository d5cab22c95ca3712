from __future__ import annotations

import pytest

from holdfast.core.effects import CancelJob, DropState, RunJob
from holdfast.core.events import JobDone, JobFailed
from holdfast.core.machine import ProtocolError
from holdfast.core.versions import (
    Advanced,
    Begin,
    ForgetLive,
    Fork,
    Line,
    Versions,
    VersionsState,
)


def advance(versions: Versions, line: Line, stop: int, state: str, marker: int = 0) -> RunJob:
    (job,) = versions.handle(Begin(line, stop, (), ()), 0)
    assert isinstance(job, RunJob)
    versions.handle(JobDone(job.job, state, marker, ()), 0)
    versions.validate()
    return job


def test_checkpoint_redo_keeps_the_state_from_before_the_failure() -> None:
    versions = Versions("a", 0, 0)
    advance(versions, Line.STABLE, 100, "S1")
    versions.handle(Fork(clear=False), 0)
    assert advance(versions, Line.LIVE, 200, "L1").state == "S1"
    redo = advance(versions, Line.STABLE, 300, "S2")
    assert (redo.state, redo.start) == ("S1", 100)


def test_undo_redo_rebuilds_it_from_the_marker() -> None:
    versions = Versions("a", 0, 0)
    advance(versions, Line.STABLE, 100, "S1", marker=40)
    versions.handle(Fork(clear=True), 0)
    advance(versions, Line.LIVE, 200, "L1")
    assert versions.state is VersionsState.CLEARED_FORKED
    with pytest.raises(ProtocolError, match="no state"):
        versions.handle(Begin(Line.STABLE, 300, (), ()), 0)
    rebuild = advance(versions, Line.REBUILD, 100, "S1 again", marker=40)
    assert (rebuild.state, rebuild.start) == (None, 40)
    assert advance(versions, Line.STABLE, 300, "S2").state == "S1 again"


def test_a_state_that_depends_on_nothing_needs_no_rebuilding() -> None:
    versions = Versions("a", 0, 0)
    advance(versions, Line.STABLE, 100, "S1", marker=100)
    versions.handle(Fork(clear=True), 0)
    assert versions.state is VersionsState.FORKED


def test_states_nobody_needs_are_dropped() -> None:
    versions = Versions("a", 0, 0)
    advance(versions, Line.STABLE, 100, "S1")
    (job,) = versions.handle(Begin(Line.STABLE, 200, (), ()), 0)
    assert isinstance(job, RunJob)
    effects = versions.handle(JobDone(job.job, "S2", 0, ()), 0)
    assert effects == [Advanced(Line.STABLE, 200, (), frozenset()), DropState("S1")]


def test_a_live_job_is_cancelled_and_its_late_result_dropped() -> None:
    versions = Versions("a", 0, 0)
    versions.handle(Fork(clear=False), 0)
    (job,) = versions.handle(Begin(Line.LIVE, 100, (), ()), 0)
    assert isinstance(job, RunJob)
    assert versions.handle(ForgetLive(), 0) == [CancelJob(job.job)]
    assert versions.handle(JobDone(job.job, "late", 0, ()), 0) == [DropState("late")]


def test_a_failed_job_can_be_tried_again() -> None:
    versions = Versions("a", 0, 0)
    (job,) = versions.handle(Begin(Line.STABLE, 100, (), ()), 0)
    assert isinstance(job, RunJob)
    versions.handle(JobFailed(job.job, "executor lost"), 0)
    assert versions.job is None
    assert advance(versions, Line.STABLE, 100, "S1").start == 0


def test_taint_stays_until_the_live_version_ends() -> None:
    versions = Versions("a", 0, 0)
    versions.handle(Fork(clear=False), 0)
    for stop, tainted in ((100, frozenset({"o"})), (200, frozenset[str]())):
        (job,) = versions.handle(Begin(Line.LIVE, stop, (), (), tainted), 0)
        assert isinstance(job, RunJob)
        versions.handle(JobDone(job.job, stop, 0, ()), 0)
    assert versions.tainted == {"o"}
    versions.handle(ForgetLive(), 0)
    assert not versions.tainted
