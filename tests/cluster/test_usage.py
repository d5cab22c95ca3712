"""What a process group uses, its children counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from holdfast.cluster.usage import jvm_of, signal_jvm, usage, with_usage

# A child that is called as a JVM is, and a parent that waits.
PROGRAM = """
import ctypes, os, time
if os.fork() == 0:
    ctypes.CDLL(None).prctl(15, b"java", 0, 0, 0)
    print("ready", flush=True)
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
time.sleep(60)
"""


@pytest.fixture
def group() -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(condition: object, seconds: float = 30.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_children_are_counted(group: int) -> None:
    wait_for(lambda: usage({group})[group]["cpu_s"] >= 0.25)
    found = usage({group, 1 << 30})
    assert list(found) == [group]
    assert found[group]["memory_bytes"] > 1_000_000
    states = with_usage({"main-1": {"pid": group}, "main-2": {"pid": None}})
    assert states["main-1"]["memory_bytes"] > 1_000_000
    assert states["main-2"] == {"pid": None}


def test_a_paused_process_is_seen_to_be_so(group: int) -> None:
    assert not usage({group})[group]["paused"]
    os.killpg(group, signal.SIGSTOP)
    wait_for(lambda: usage({group})[group]["paused"])


def test_the_jvm_alone_is_signalled(group: int) -> None:
    jvm = jvm_of(group)
    assert jvm is not None
    assert jvm != group
    assert signal_jvm(group, signal.SIGKILL) == jvm
    os.kill(group, 0)  # its process goes on
    assert signal_jvm(None, signal.SIGKILL) is None
    assert jvm_of(1 << 30) is None
