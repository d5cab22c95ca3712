"""What a run shows, and how it is asked to stop."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.single.progress import Progress
from holdfast.single.reports import AdvanceReport, RunSummary
from holdfast.single.stopping import Stop

REPORT = AdvanceReport(
    boundary=0,
    tuples_in=1200,
    tuples_out=34,
    bucket_seconds=0.15,
    latency_seconds=0.4,
    open_windows=77,
    dead_letters=2,
    outputs={},
)
SUMMARY = RunSummary(1200, {"busy": 34}, 2, Path("dead.jsonl"), 1, 3.21, finished=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_interrupts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Stop() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_terminal_sees_everything_in_one_place() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    progress = Progress("monitoring", console)
    progress.started(resumed=True)
    progress.advanced(REPORT)
    progress._shown = 0
    progress.ticked()
    progress.ended(SUMMARY)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for wanted in ("going on where", "tuples/s", "150 ms", "400 ms", "77", "open windows"):
        assert wanted in shown
    assert "monitoring: done after 3.2 s: 1,200 tuples in, 34 busy out; 2 dead letters" in shown


def test_a_pipe_gets_lines() -> None:
    console = Console(file=io.StringIO(), width=120)
    progress = Progress("monitoring", console)
    progress.started(resumed=False)
    progress.advanced(REPORT)
    progress._shown = -100
    progress.ticked()
    progress.ended(None)
    (line,) = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "bucket 150 ms, latency 400 ms, open windows 77, dead letters 2" in line
