"""Blows for benchmark kill where every fragment has two copies, in two processes.

    one       the process of a fragment's primary, or of its other copy, is killed
    again     the primary's process, and when results go on the one that took over
    both      both at once
    awake     one stands still until the other's copies run; that one is killed then
    still     one stands still for up to six seconds
    apart     the two do not hear each other for a while, though both are well

They come in a random order, half of them when all is well again, half in the midst of the last.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.cluster.chaos import ChaosError, heal, partition
from holdfast.cluster.status import node_status
from holdfast.cluster.supervisor import Supervisor

PATIENCE_SECONDS = 120.0
KINDS = ("one", "again", "both", "awake", "still", "apart")


class Blows:
    """Strikes the copies of a deployment, again and again."""

    def __init__(
        self,
        supervisor: Supervisor,
        processes: tuple[str, str],
        results: Path,
        seed: int,
        tell: Callable[[str], None],
    ) -> None:
        """``results`` is the file the client writes."""
        self._supervisor = supervisor
        self._deployment = supervisor.deployment
        self._processes = processes
        self._results = results
        self._random = random.Random(seed)
        self._tell = tell
        self.kills = 0

    def strike(self, count: int) -> dict[str, int]:
        """So many blows; how many of each kind."""
        kinds = [KINDS[number % len(KINDS)] for number in range(count)]
        self._random.shuffle(kinds)
        for kind in kinds:
            if self._random.random() < 0.5:
                self._wait_well()
            else:
                time.sleep(self._random.uniform(0.2, 3.0))
            first, other = self._ordered()
            self._tell(f"{kind}: {first}")
            getattr(self, f"_{kind}")(first, other)
        return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}

    # -- blows --------------------------------------------------------------------------

    def _one(self, first: str, other: str) -> None:
        self._kill(self._random.choice([first, other]))

    def _again(self, first: str, other: str) -> None:
        self._kill(first)
        self._wait_results()
        self._kill(other)

    def _both(self, first: str, other: str) -> None:
        self._kill(first)
        self._kill(other)

    def _awake(self, first: str, other: str) -> None:
        if self._signal(first, signal.SIGSTOP):
            self._wait_for(lambda: self._runs(other), 8.0)
            self._kill(other)
            time.sleep(self._random.uniform(0.0, 2.0))
            self._signal(first, signal.SIGCONT)

    def _still(self, first: str, other: str) -> None:
        if self._signal(first, signal.SIGSTOP):
            time.sleep(self._random.uniform(0.3, 6.0))
            self._signal(first, signal.SIGCONT)

    def _apart(self, first: str, other: str) -> None:
        nodes = self._deployment.processes
        with contextlib.suppress(ChaosError):  # neither is up
            partition(self._deployment, nodes[first], nodes[other])
        time.sleep(self._random.uniform(0.3, 4.0))
        # A node that does not answer may have cut its links itself.
        self._wait_for(lambda: not heal(self._deployment), PATIENCE_SECONDS)

    # -- what is there ------------------------------------------------------------------

    def _kill(self, process: str) -> None:
        self.kills += bool(self._supervisor.kill(process))

    def _signal(self, process: str, number: signal.Signals) -> bool:
        return self._supervisor.signal(process, number) is not None

    def _ordered(self) -> tuple[str, str]:
        """The process with more primaries, then the other."""
        one, other = self._processes
        primaries = [
            sum(each.get("copy") == "primary" for each in self._status(process))
            for process in self._processes
        ]
        return (other, one) if primaries[1] > primaries[0] else (one, other)

    def _status(self, process: str) -> Sequence[dict[str, Any]]:
        nodes = list(self._deployment.processes[process])
        return list(node_status(self._deployment, nodes).values())

    def _runs(self, process: str) -> bool:
        return all(
            each.get("awake", True) and "error" not in each for each in self._status(process)
        )

    def _is_well(self) -> bool:
        now = time.time()
        found = [each for process in self._processes for each in self._status(process)]
        return all(
            each.get("state") in ("stable", "suspended")
            and now - int(each.get("boundary", 0)) / 1e6 < 4.0
            for each in found
        )

    def _wait_well(self) -> None:
        self._wait_for(self._is_well, PATIENCE_SECONDS)

    def _wait_results(self) -> None:
        had = self._size()
        self._wait_for(lambda: self._size() > had, PATIENCE_SECONDS)

    def _size(self) -> int:
        return self._results.stat().st_size if self._results.exists() else 0

    def _wait_for(self, holds: Callable[[], bool], seconds: float) -> None:
        """It may not come to hold, after many blows; the next one comes all the same."""
        deadline = time.monotonic() + seconds
        while not holds() and time.monotonic() < deadline:
            time.sleep(0.1)
