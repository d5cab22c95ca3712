"""Structured log lines: one JSON object a line, on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from typing import Any

_lock = threading.Lock()
# What happens again and again is said again after this long, with how often it happened.
AGAIN_SECONDS = 60.0
# So many different things are told apart; when there are more, all are forgotten.
_KEPT = 200


class Journal:
    """What one node has to say."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def write_once(self, event: str, key: str, *, level: str = "warning", **fields: Any) -> None:
        """A line about something that may happen twenty times a second: one a minute for each key.

        The next line says how often it has happened since.
        """
        now = time.monotonic()
        said_at, times = self._said.get((event, key), (now - AGAIN_SECONDS, 0))
        if now - said_at < AGAIN_SECONDS:
            self._said[event, key] = (said_at, times + 1)
            return
        if len(self._said) >= _KEPT:
            self._said.clear()
        self._said[event, key] = (now, 0)
        self.write(event, level=level, **fields, **({"times": times} if times else {}))

    def write(self, event: str, *, level: str = "info", **fields: Any) -> None:
        """One line: time, level, who, what, and anything else."""
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        line = {
            "time": f"{stamp}.{int(now % 1 * 1000):03}Z",
            "level": level,
            "process": self._name,
            "event": event,
            **fields,
        }
        text = json.dumps(line, default=str)
        # In one piece: libraries write there, too, whenever they like. Who has nowhere to write
        # its lines goes on all the same.
        with _lock, contextlib.suppress(OSError):
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def refused_call(self, caller: str, address: str, reason: str, calls: int) -> None:
        """Somebody was not let in (``flight.refusals``)."""
        fields = {"caller": caller, "address": address, "reason": reason, "calls": calls}
        self.write("refused call", level="warning", **fields)
