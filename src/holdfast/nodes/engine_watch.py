"""Watches over the JVM of a process: one that has died, or stands still for good, ends the process.

A JVM may die alone, of the kernel's out-of-memory killer say, and Python goes on without it: every
job would fail, and whoever asks would be answered as if nothing had happened. It may also stand
still, stopped or collecting garbage. A short while of that is for the protocols, which count who
gets nothing done as missing (core/progress.py); a long one is not going to end by itself.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable

from holdfast.errors import HoldfastError

# How often the JVM is asked, and how long it may not answer.
_ASK_SECONDS = 1.0
SILENT_SECONDS = 30.0
# A longer time between two looks is one during which this process did not run, either.
_LONGEST_STEP_SECONDS = 3.0


class EngineLost(HoldfastError):
    """The JVM of this process is of no use any more."""


class EngineWatch:
    """Two threads: one waits for the end of the JVM, one asks it how it is."""

    def __init__(
        self,
        process: subprocess.Popen[bytes] | None,
        ask: Callable[[], object],
        on_lost: Callable[[BaseException], None],
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        """``ask`` returns when the JVM has answered; ``process`` is None if it is another's."""
        self._process = process
        self._ask = ask
        self._on_lost = on_lost
        self._silent_seconds = silent_seconds
        self._answered = threading.Event()
        self._stopping = threading.Event()
        self.silent_s = 0.0

    def start(self) -> None:
        targets = [self._ask_again, self._count]
        if self._process is not None:
            targets.append(self._wait_for_end)
        for target in targets:
            threading.Thread(target=target, name=f"engine{target.__name__}", daemon=True).start()

    def stop(self) -> None:
        """What happens to the JVM from now on is meant to."""
        self._stopping.set()

    def _lost(self, why: str) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            self._on_lost(EngineLost(why))

    def _wait_for_end(self) -> None:
        assert self._process is not None
        code = self._process.wait()
        how = f"ended with code {code}; what it said stands before this in the log"
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        if code == -signal.SIGKILL:
            how += ", which is what the kernel does when memory runs out; see spark.driver.memory"
        self._lost(f"the JVM of this process, pid {self._process.pid}, {how}")

    def _ask_again(self) -> None:
        while not self._stopping.is_set():
            try:
                self._ask()
            except Exception as error:
                # One that is gone is told of with how it went.
                if self._stopping.wait(_ASK_SECONDS):
                    return
                self._lost(f"the JVM of this process does not answer: {error}")
                return
            self._answered.set()
            self._stopping.wait(_ASK_SECONDS)

    def _count(self) -> None:
        """Count the seconds without an answer in which this process itself ran."""
        looked = time.monotonic()
        while not self._stopping.wait(_ASK_SECONDS / 2):
            now = time.monotonic()
            step, looked = now - looked, now
            if self._answered.is_set():
                self._answered.clear()
                self.silent_s = 0.0
            elif step < _LONGEST_STEP_SECONDS:
                self.silent_s += step
            if self.silent_s > self._silent_seconds + 2 * _ASK_SECONDS:
                pid = "" if self._process is None else f", pid {self._process.pid},"
                self._lost(
                    f"the JVM of this process{pid} has not answered for {self.silent_s:.0f} s: it "
                    f"is stopped, or does nothing but collect garbage; see spark.driver.memory"
                )
