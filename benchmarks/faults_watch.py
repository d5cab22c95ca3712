"""Somebody who watches a deployment that is made to fail, and counts what must not happen.

A reader of each output checks that ids go on one after the other; a look at the status of all
nodes, twice a second, tells whether somebody said that something is wrong. *Silent* is a stretch
of more than 2 X + 5 s in which neither a result came nor an error was in the status.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.faults_deployment import PROTECTIONS, X_SECONDS, Deployed
from benchmarks.output_reader import OutputReader
from holdfast.client import ClientEvent, Tuples

SILENT_SECONDS = 2 * X_SECONDS + 5.0
LOOK_SECONDS = 0.5


class Reader(OutputReader):
    """Knows when the latest result came."""

    def __init__(self, deployed: Deployed, output: str) -> None:
        self.result_at = time.monotonic()
        super().__init__(deployed.deployment.path, output, f"watch-{output}")

    def came(self, event: ClientEvent) -> None:
        if isinstance(event, Tuples):
            self.result_at = time.monotonic()


class Watch:
    """Readers of every output, and what the nodes say."""

    def __init__(self, deployed: Deployed, tell: Callable[[str], None]) -> None:
        readers = {name: Reader(deployed, name) for name in PROTECTIONS}
        self._begin(deployed, readers, tell)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _begin(
        self, deployed: Deployed, readers: dict[str, Reader], tell: Callable[[str], None]
    ) -> None:
        self._deployed = deployed
        self._tell = tell
        self.readers = readers
        self.silent: list[str] = []
        # Of each output: when somebody last said that something is wrong with it, and what.
        self._said_at = dict.fromkeys(PROTECTIONS, time.monotonic())
        self._said = dict.fromkeys(PROTECTIONS, "")
        self._stretch: set[str] = set()
        self.gap_s = dict.fromkeys(PROTECTIONS, 0.0)
        self._stopping = threading.Event()

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                found = self._deployed.statuses()
            except Exception as error:
                found = {}
                self._note(PROTECTIONS, str(error))
            self.look(found)

    def look(self, statuses: dict[str, dict[str, Any]]) -> None:
        """See who says that something is wrong, and who is silent."""
        for node, said in statuses.items():
            wrong = _wrong(said)
            if wrong:
                self._note(_concerned(node), f"{node}: {wrong}")
        self._look()

    def _note(self, outputs: tuple[str, ...], text: str) -> None:
        for output in outputs:
            self._said_at[output] = time.monotonic()
            self._said[output] = text

    def _look(self) -> None:
        now = time.monotonic()
        for output, reader in self.readers.items():
            without_result = now - reader.result_at
            self.gap_s[output] = max(self.gap_s[output], without_result)
            nothing = now - max(reader.result_at, self._said_at[output])
            if nothing <= SILENT_SECONDS:
                self._stretch.discard(output)
            elif output not in self._stretch:
                self._stretch.add(output)
                story = f"{output}: no result for {without_result:.0f} s and nobody says why"
                self.silent.append(story)
                self._tell(f"SILENT {story}; said last: {self._said[output] or 'nothing'}")

    def begin(self) -> None:
        """A fault comes: gaps are counted from here."""
        now = time.monotonic()
        self.gap_s = {name: now - reader.result_at for name, reader in self.readers.items()}

    def said(self) -> dict[str, str]:
        """What was wrong last, by output."""
        return dict(self._said)

    @property
    def broken(self) -> list[str]:
        return [story for reader in self.readers.values() for story in reader.broken]

    def end(self) -> None:
        """Look no more; the readers go on."""
        self._stopping.set()
        self._thread.join(10.0)

    def close(self) -> None:
        self.end()
        for reader in self.readers.values():
            reader.close()


def _wrong(said: dict[str, Any]) -> str:
    """What a node says is wrong, as `holdfast status` shows it."""
    if "error" in said:
        return str(said["error"])
    problems = [*said.get("problems", ()), *said.get("refused", {}).values()]
    return "; ".join(map(str, problems))


def _concerned(node: str) -> tuple[str, ...]:
    """The outputs that a node's trouble is a trouble of."""
    if node.startswith("entry-"):
        return PROTECTIONS
    name = node.removeprefix("sink-") if node.startswith("sink-") else node.rsplit("-", 1)[0]
    return (name,)
