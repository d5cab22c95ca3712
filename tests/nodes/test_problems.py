"""What is wrong with a node is named, with what to do, and said once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import disk
from holdfast.core.copy_view import OutputView
from holdfast.core.events import EarlyDone, EarlyFailed, JobFailed
from holdfast.core.progress import Progress
from holdfast.core.settings import Timing
from holdfast.core.versions import Line, Running
from holdfast.disk import Fault
from holdfast.nodes.journal import Journal
from holdfast.nodes.left_out import LeftOut
from holdfast.nodes.metrics import NodeMetrics, registry
from holdfast.nodes.problems import Problems, tell_crowded, tell_early, tell_work
from holdfast.spark.rejected import Rejected

JOB = Running(7, Line.STABLE, 1_000_000, 1_200_000)
ROW = Rejected("process_1", "ValueError: no", {"k": "a", "n": -2})


def crowded(stream: str, tuples: int) -> OutputView:
    return OutputView(stream, 0, 0, 0, 0, 0, tuples)


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]


def test_a_poison_bucket_is_named_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = NodeMetrics("main-7", "replica")
    problems, progress = Problems(Journal("main-7"), metrics), Progress("main-7", Timing())
    for _ in range(6):
        progress.failed(JobFailed(7, "ValueError: no (network.py, line 3)", True), JOB, 0)
        tell_work(problems, metrics, progress.view(), "main")
    (text,) = problems.texts
    assert text.startswith("fragment main: ")
    assert "from 1970-01-01T00:00:01.000Z to 1970-01-01T00:00:01.200Z, 6 times" in text
    assert "ValueError: no (network.py, line 3)" in text
    assert 'on_error = "dead-letter"' in text
    labels = {"node": "main-7", "kind": "replica", "problem": "poison"}
    assert registry.get_sample_value("holdfast_problem", labels) == 1
    bucket = {
        "node": "main-7",
        "kind": "replica",
        "fragment": "main",
        "exception": "ValueError",
    }
    assert registry.get_sample_value("holdfast_poison_bucket_seconds", bucket) == 1.0
    # Another exception takes the place of the one before.
    progress.failed(JobFailed(7, "KeyError: 'k'", True), JOB, 0)
    tell_work(problems, metrics, progress.view(), "main")
    assert registry.get_sample_value("holdfast_poison_bucket_seconds", bucket) is None
    bucket["exception"] = "KeyError"
    assert registry.get_sample_value("holdfast_poison_bucket_seconds", bucket) == 1.0
    progress.done(Line.STABLE)
    tell_work(problems, metrics, progress.view(), "main")
    assert problems.texts == []
    assert registry.get_sample_value("holdfast_problem", labels) == 0
    assert registry.get_sample_value("holdfast_poison_bucket_seconds", bucket) is None
    assert said(capsys) == ["problem", "problem over"], "once each"


def test_early_jobs_that_fail_are_told_of_and_hold_nothing_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    problems = Problems(Journal("main-9"), NodeMetrics("main-9", "replica"))
    for _ in range(2):
        tell_early(problems, EarlyFailed(3, "executor lost"))
    (text,) = problems.texts
    assert "executor lost. They come in order" in text
    assert problems.blocking == []
    tell_early(problems, EarlyDone(4, (), ()))
    assert problems.texts == []
    assert said(capsys) == ["problem", "problem over"], "once each"


def test_rows_left_out_are_written_down_before_anything_else_happens(tmp_path: Path) -> None:
    path = tmp_path / "dead-letters.jsonl"
    left_out = LeftOut(path, Journal("main-8"))
    left_out.take((ROW,))
    with disk.failing(Fault.named("ENOSPC")), pytest.raises(OSError, match="No space"):
        left_out.take((ROW,))
    left_out.take((ROW,))
    left_out.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == 2 * [{"source": "process_1", "reason": "ValueError: no", "row": ROW.row}]
    assert LeftOut(path, Journal("main-8")).count == 2


def test_tentative_results_of_which_there_are_too_many_do_not_go_in_silence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    problems = Problems(Journal("main-9"), NodeMetrics("main-9", "replica"))
    tell_crowded(problems, (), 10_000)
    assert problems.texts == []
    tell_crowded(problems, [crowded("out", 50)], 10_000)
    tell_crowded(
        problems, [crowded("other", 1), crowded("out", 1_250), crowded("third", 0)], 10_000
    )
    (text,) = problems.texts
    assert "1 of other, 1,250 of out: of a stream 10,000 frames" in text
    assert "set timing.tentative_frames" in text
    assert problems.blocking == [], "results go on all the same"
    tell_crowded(problems, (), 10_000)
    assert problems.texts == []
    assert said(capsys) == ["problem", "problem over"]
