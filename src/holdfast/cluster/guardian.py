"""Ends the processes of a supervisor that is gone, also those that are stopped:

    python -m holdfast.cluster.guardian

A process notices by itself that its supervisor has died, and ends. One that is stopped, or whose
JVM is, notices nothing, and would hold its ports and its directory for ever. So a supervisor has a
guardian: a small process that is told the process groups, and waits for the pipe to be closed. What
is left of them some seconds later is killed, stopped or not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from typing import IO

# How long the processes have to end by themselves.
GRACE_SECONDS = 10.0
# How long a guardian may take to start, on a busy machine.
_START_SECONDS = 30.0


class Guardian:
    """The supervisor's side; any thread may tell it. One that has died is replaced."""

    def __init__(self, grace_seconds: float = GRACE_SECONDS) -> None:
        self._grace_seconds = grace_seconds
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def watch_over(self, group: int) -> None:
        """There is a process with a group of its own."""
        with self._lock:
            self._groups.add(group)
            self._tell(f"+{group}")

    def forget(self, group: int) -> None:
        """Nothing is left of it."""
        with self._lock:
            self._groups.discard(group)
            self._tell(f"-{group}")

    def close(self) -> None:
        """The supervisor ends. So does the guardian, after what is left of the processes."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                if not self._groups:
                    process.kill()
                _close(process.stdin)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(self._grace_seconds + _START_SECONDS)

    def _tell(self, line: str) -> None:
        process = self._process
        if process is not None and process.poll() is None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.write(line + "\n")
                process.stdin.flush()
                return
        if process is not None:
            _close(process.stdin)
            process.wait()
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str] | None:
        command = [sys.executable, "-m", "holdfast.cluster.guardian", str(self._grace_seconds)]
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                text=True,
            )
        except OSError:
            return None  # tried again with the next word
        assert process.stdin is not None
        try:
            process.stdin.write("".join(f"+{group}\n" for group in sorted(self._groups)))
            process.stdin.flush()
        except OSError:
            # It has ended already; tried again with the next word.
            _close(process.stdin)
            process.kill()
            process.wait()
            return None
        return process


def _close(stdin: IO[str] | None) -> None:
    if stdin is not None:
        with contextlib.suppress(OSError):
            stdin.close()


def groups_left(lines: Iterable[str]) -> set[int]:
    """The groups that were named and not taken back until the pipe was closed."""
    groups: set[int] = set()
    for line in lines:
        with contextlib.suppress(ValueError):
            number = int(line[1:])
            if line.startswith("+"):
                groups.add(number)
            else:
                groups.discard(number)
    return groups


def end_groups(groups: set[int], grace_seconds: float) -> None:
    """Wait for groups to end, then kill what is left."""
    deadline = time.monotonic() + grace_seconds
    while groups and time.monotonic() < deadline:
        groups = {group for group in groups if _exists(group)}
        time.sleep(0.1)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # somebody else's by now
    return True


def main(arguments: list[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with the pipe
    end_groups(groups_left(sys.stdin), float(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
