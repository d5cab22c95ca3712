"""Processes whose supervisor is gone end, also stopped ones; process logs have a bound."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil

from holdfast.cluster.guardian import Guardian

SECONDS = 60.0
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
# A supervisor of one process, which is stopped; it says which, and is killed.
SUPERVISOR = """
import signal, subprocess, sys, time
from holdfast.cluster.guardian import Guardian
child = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)"],
    start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
)
guardian = Guardian(grace_seconds=0.5)
guardian.watch_over(child.pid)
child.send_signal(signal.SIGSTOP)
print(child.pid, guardian.pid, flush=True)
time.sleep(600)
"""


def wait(until: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not until():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_stopped_process_of_a_dead_supervisor_ends() -> None:
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR], stdout=subprocess.PIPE)
    assert supervisor.stdout is not None
    child, guardian = map(int, supervisor.stdout.readline().split())
    stopped = psutil.Process(child)
    wait(lambda: stopped.status() == psutil.STATUS_STOPPED, "it does not stop")
    supervisor.kill()
    supervisor.communicate(timeout=SECONDS)
    wait(lambda: is_gone(child), "the stopped process is left")
    wait(lambda: is_gone(guardian), "the guardian is left")


def test_a_guardian_that_is_killed_is_replaced() -> None:
    guardian = Guardian(grace_seconds=0.2)
    one, other = (subprocess.Popen(SLEEP, start_new_session=True) for _ in range(2))
    guardian.watch_over(one.pid)
    first = guardian.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait(lambda: is_gone(first), "it is not killed")
    guardian.watch_over(other.pid)
    assert guardian.pid not in (None, first)
    guardian.close()  # without a word about the two: as if the supervisor had died
    assert one.wait(SECONDS) == other.wait(SECONDS) == -signal.SIGKILL


def test_processes_that_were_ended_are_left_alone() -> None:
    guardian = Guardian(grace_seconds=0.1)
    process = subprocess.Popen(SLEEP, start_new_session=True)
    guardian.watch_over(process.pid)
    guardian.forget(process.pid)
    guardian.close()
    assert process.poll() is None
    process.kill()
    process.wait(SECONDS)
