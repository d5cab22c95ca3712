from __future__ import annotations

import pytest

from holdfast.core.effects import CancelJob, GiveUp, RunJob
from holdfast.core.events import JobDone, JobFailed, Left
from holdfast.core.machine import ProtocolError
from holdfast.core.versions import (
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
    versions.handle(Fork(undo=False), 0)
    assert advance(versions, Line.LIVE, 200, "L1").state == "S1"
    redo = advance(versions, Line.STABLE, 300, "S2")
    assert (redo.state, redo.start) == ("S1", 100)


def live(versions: Versions, stop: int, state: str, left: Left | None, *inputs: str) -> RunJob:
    """A job of the live version that takes these inputs tentatively."""
    begin = Begin(Line.LIVE, stop, (), (), tentative=frozenset(inputs))
    (job,) = versions.handle(begin, 0)
    assert isinstance(job, RunJob)
    versions.handle(JobDone(job.job, state, 0, (), left=left), 0)
    versions.validate()
    return job


def test_undo_redo_rebuilds_from_their_marker_the_operators_that_tentative_input_reaches() -> None:
    versions = Versions("a", 0, 0)
    advance(versions, Line.STABLE, 100, "S1", marker=40)
    versions.handle(Fork(undo=True), 0)
    first = live(versions, 200, "L1", Left("S1 without a", 60), "a")
    assert first.gives_up == GiveUp("S1", 100, frozenset({"a"}))
    assert versions.state is VersionsState.CLEARED_FORKED
    with pytest.raises(ProtocolError, match="no state"):
        versions.handle(Begin(Line.STABLE, 300, (), ()), 0)
    # Another input fails, too; what it reaches rests on older input.
    second = live(versions, 300, "L2", Left("S1 without a and b", 50), "a", "b")
    assert second.gives_up == GiveUp("S1 without a", 100, frozenset({"a", "b"}))
    rebuild = advance(versions, Line.REBUILD, 100, "S1 again", marker=40)
    assert (rebuild.state, rebuild.start) == ("S1 without a and b", 50)
    # Beside the redo nothing is given up again.
    assert live(versions, 400, "L3", None, "a").gives_up is None
    assert advance(versions, Line.STABLE, 300, "S2").state == "S1 again"


def test_what_tentative_input_does_not_reach_needs_no_rebuilding() -> None:
    versions = Versions("a", 0, 0)
    advance(versions, Line.STABLE, 100, "S1", marker=40)
    versions.handle(Fork(undo=True), 0)
    # All that came was stable: there is nothing to undo.
    assert live(versions, 200, "L1", None).gives_up is None
    # No operator with a state is below the input.
    live(versions, 300, "L2", Left("S1 without a", 100), "a")
    assert versions.state is VersionsState.FORKED
    assert advance(versions, Line.STABLE, 300, "S2").state == "S1"


def test_a_state_that_depends_on_nothing_needs_no_rebuilding() -> None:
    versions = Versions("a", 0, 0)
    advance(versions, Line.STABLE, 100, "S1", marker=100)
    versions.handle(Fork(undo=True), 0)
    assert live(versions, 200, "L1", None, "a").gives_up is None


def test_a_live_job_is_cancelled_and_its_late_result_dropped() -> None:
    versions = Versions("a", 0, 0)
    versions.handle(Fork(undo=False), 0)
    (job,) = versions.handle(Begin(Line.LIVE, 100, (), ()), 0)
    assert isinstance(job, RunJob)
    assert versions.handle(ForgetLive(), 0) == [CancelJob(job.job)]
    assert versions.handle(JobDone(job.job, "late", 0, ()), 0) == []


def test_a_failed_job_can_be_tried_again() -> None:
    versions = Versions("a", 0, 0)
    (job,) = versions.handle(Begin(Line.STABLE, 100, (), ()), 0)
    assert isinstance(job, RunJob)
    versions.handle(JobFailed(job.job, "executor lost"), 0)
    assert versions.job is None
    assert advance(versions, Line.STABLE, 100, "S1").start == 0


def test_taint_stays_until_the_live_version_ends() -> None:
    versions = Versions("a", 0, 0)
    versions.handle(Fork(undo=False), 0)
    for stop, tainted in ((100, frozenset({"o"})), (200, frozenset[str]())):
        (job,) = versions.handle(Begin(Line.LIVE, stop, (), (), tainted), 0)
        assert isinstance(job, RunJob)
        versions.handle(JobDone(job.job, stop, 0, ()), 0)
    assert versions.tainted == {"o"}
    versions.handle(ForgetLive(), 0)
    assert not versions.tainted
