"""Follows what the processes write, for the moment of each change: here from their files, which
costs them nothing, elsewhere through their servers. What they wrote in the hour before is taken.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import Any

from holdfast.cluster.children import last_lines, lines_after, log_path
from holdfast.cluster.remote import RemoteServer, ServerError
from holdfast.deployment import Deployment
from holdfast.web.history import KEPT_SECONDS, History
from holdfast.web.model import Places, shown_state
from holdfast.web.servers import HERE

_REMOTE_SECONDS = 2.0
_ASKED_AT_ONCE = 8
_LONGEST_TEXT = 300
# Of what a process wrote before anybody looked.
_LINES_BEFORE = 1_000
# What says nothing to somebody who looks at the whole.
_LEFT_OUT = ("refused call", "process", "listening", "certificates renewed")
# The fields that tell what happened; the others are for whoever reads the file.
_TELLING = ("state", "copy", "why", "problem", "reason", "peer")


class Journals:
    """The ends of all journals of a deployment. One thread uses it; servers are asked in others."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._offsets: dict[str, int] = {}
        self._of = ""
        self._asked: dict[str, Future[tuple[list[str], int]]] = {}
        self._again_at: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="holdfast-journal")

    def follow(self, places: Places) -> None:
        """Take what was written since the last time."""
        if places.deployment.name != self._of:
            # Another submission of a cluster: its processes have journals of their own.
            self._of = places.deployment.name
            self._offsets.clear()
        for process, server in places.server_of.items():
            lines = (
                self._here(places.deployment, process)
                if server == HERE
                else self._there(places.deployment, process, server)
            )
            for line in lines:
                if line.startswith("{"):
                    self._take(line)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _here(self, deployment: Deployment, process: str) -> list[str]:
        path, offset = log_path(deployment, process), self._offsets.get(process)
        lines, end = (
            last_lines(path, _LINES_BEFORE) if offset is None else lines_after(path, offset)
        )
        self._offsets[process] = end
        return lines

    def _there(self, deployment: Deployment, process: str, server: str) -> list[str]:
        """What a server has answered by now; it is asked again every few seconds."""
        asked = self._asked.get(process)
        if asked is None:
            if time.monotonic() >= self._again_at.get(process, 0.0):
                offset = self._offsets.get(process)
                self._asked[process] = self._pool.submit(
                    lambda: RemoteServer(deployment, server).logs(process, offset, _LINES_BEFORE)
                )
            return []
        if not asked.done():
            return []
        del self._asked[process]
        self._again_at[process] = time.monotonic() + _REMOTE_SECONDS
        try:
            lines, self._offsets[process] = asked.result()
        except (ServerError, OSError):
            return []  # that it does not answer is seen elsewhere
        return lines

    def _take(self, line: str) -> None:
        try:
            said: dict[str, Any] = json.loads(line)
            at = datetime.fromisoformat(said["time"]).timestamp()
            node = str(said["node"] if "node" in said else said["process"])
            event = str(said["event"])
        except (ValueError, KeyError, TypeError):
            return  # half a line, or somebody else's
        if at < time.time() - KEPT_SECONDS:
            return
        if event == "state":
            self._history.in_state(node, at, shown_state(str(said.get("state"))))
        elif event not in _LEFT_OUT:
            text = " ".join([event, *_details(said)])[:_LONGEST_TEXT]
            self._history.happened(at, node, text, str(said.get("level", "info")))


def _details(said: dict[str, Any]) -> Iterator[str]:
    for name in _TELLING:
        if said.get(name):
            yield f"· {said[name]}"
