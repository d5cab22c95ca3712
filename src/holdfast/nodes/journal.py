"""Structured log lines: one JSON object a line, on standard error, by way of ``logging``."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from typing import Any

# What happens again and again is said again after this long, with how often it happened.
AGAIN_SECONDS = 60.0
# So many different things are told apart; when there are more, all are forgotten.
_KEPT = 200


class JsonLines(logging.Formatter):
    """A record as one JSON object: time, level, who, what, and anything else.

    Who is a node, or the process where it is none of its nodes.
    """

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{stamp}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            **getattr(record, "who", {"process": self._process}),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class StandardError(logging.Handler):
    """Writes lines where standard error is now."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self.setFormatter(JsonLines(process))

    def emit(self, record: logging.LogRecord) -> None:
        # In one piece: libraries write there, too, whenever they like. Who has nowhere to write
        # its lines goes on all the same.
        with contextlib.suppress(OSError):
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()


_journals = logging.getLogger(__name__)
_journals.setLevel(logging.DEBUG)
_journals.propagate = False
_journals.addHandler(StandardError())


def adopt_logging(process: str) -> None:
    """What Holdfast's modules log in this process is lines of its journal, too."""
    logger = logging.getLogger("holdfast")
    logger.propagate = False
    logger.handlers = [StandardError(process)]


class Journal:
    """What one node has to say, or a process or server as such."""

    def __init__(self, name: str, kind: str = "node") -> None:
        """``kind``: what it is the name of, "node" or "process"."""
        self._who = {kind: name}
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
        number = logging.getLevelNamesMapping()[level.upper()]
        _journals.log(number, event, extra={"who": self._who, "fields": fields})

    def refused_call(self, caller: str, address: str, reason: str, calls: int) -> None:
        """Somebody was not let in (``flight.refusals``)."""
        fields = {"caller": caller, "address": address, "reason": reason, "calls": calls}
        self.write("refused call", level="warning", **fields)
