"""Structured log lines: one JSON object a line, on standard error."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

_lock = threading.Lock()


class Journal:
    """What one node has to say."""

    def __init__(self, name: str) -> None:
        self._name = name

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
        with _lock:
            print(text, file=sys.stderr, flush=True)
