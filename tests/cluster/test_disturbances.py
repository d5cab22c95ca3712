"""Bursts come when they should; a slowed process gets its share, burners burn."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cluster.disturbances import Disturbance, carry_out
from holdfast.errors import InputError


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_regular_bursts_fill_their_fraction() -> None:
    bursts = list(Disturbance(10.0, fraction=0.3, period_s=2.0).bursts())
    assert [start for start, _ in bursts] == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert [end - start for start, end in bursts] == [pytest.approx(0.6)] * 5
    assert list(Disturbance(10.0).bursts()) == [(0.0, 10.0)]


def test_poisson_bursts_fill_theirs_at_random_moments() -> None:
    made = Disturbance(10_000.0, fraction=0.3, period_s=1.0, arrivals="poisson", seed=7)
    bursts = list(made.bursts())
    assert list(made.bursts()) == bursts
    share = sum(end - start for start, end in bursts) / made.seconds
    assert share == pytest.approx(0.3, abs=0.02)
    pauses = [later - end for (_, end), (later, _) in itertools.pairwise(bursts)]
    mean = sum(pauses) / len(pauses)
    deviation = (sum((each - mean) ** 2 for each in pauses) / len(pauses)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.1)  # as an exponential distribution has it


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fraction": 0.0}, "fraction is more than 0"),
        ({"share": 1.0}, "share is from 0 to less than 1"),
        ({"arrivals": "bursty"}, "regular or poisson"),
        ({"burners": 0}, "burners is from 1"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Disturbance(1.0, **options)  # type: ignore[arg-type]


def test_a_slowed_process_gets_its_share_and_goes_on(busy: subprocess.Popen[bytes]) -> None:
    before = cpu_seconds(busy.pid)
    carry_out(Disturbance(0.6, "p", share=0.2), lambda number: os.kill(busy.pid, number))
    used = cpu_seconds(busy.pid) - before
    assert used < 0.4
    deadline = time.monotonic() + 20.0
    while cpu_seconds(busy.pid) < before + used + 0.05:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_starved_process_stands_still_in_bursts(busy: subprocess.Popen[bytes]) -> None:
    signals: list[signal.Signals] = []

    def send(number: signal.Signals) -> None:
        if not signals or signals[-1] is not number:
            signals.append(number)

    under = carry_out(Disturbance(0.5, "p", fraction=0.5, period_s=0.25), send)
    assert signals == [signal.SIGSTOP, signal.SIGCONT] * 2
    assert under >= 0.2


def test_burners_burn_in_bursts_and_are_gone_after() -> None:
    stop = threading.Event()
    made = Disturbance(60.0, burners=1)
    thread = threading.Thread(target=carry_out, args=(made, lambda number: None, stop))
    thread.start()
    children = Path(f"/proc/{os.getpid()}/task")
    deadline = time.monotonic() + 20.0
    burner = None
    while burner is None and time.monotonic() < deadline:
        pids = [int(pid) for task in children.iterdir() for pid in _children_of(task)]
        burning = [pid for pid in pids if "getppid() == parent" in _command(pid)]
        burner = next((pid for pid in burning if cpu_seconds(pid) > 0.05), None)
        time.sleep(0.01)
    assert burner is not None
    stop.set()
    thread.join(10.0)
    assert not Path(f"/proc/{burner}").exists()


def _children_of(task: Path) -> list[str]:
    try:
        return (task / "children").read_text().split()
    except OSError:
        return []


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
