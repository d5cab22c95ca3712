"""Reads the outputs of a deployment as any client does, and keeps the end of each for the page.

It is no client that the deployment names, so nothing is kept for it, and nothing waits for it.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.client import Boundary, Client, ClientEvent, Tuples, Undo
from holdfast.deployment import Deployment
from holdfast.errors import HoldfastError
from holdfast.frames import SYSTEM_COLUMNS
from holdfast.web.history import CORRECTED, STABLE, TENTATIVE, History
from holdfast.web.looking import Look
from holdfast.why_words import show_why

KEPT_ROWS = 500
# Of what comes at once only so many of the newest are shown.
_SHOWN_ROWS = 100
_READ_SECONDS = 0.5
_AGAIN_SECONDS = 2.0
# JavaScript counts exactly up to here.
_EXACT = 1 << 53


@dataclass(frozen=True)
class Row:
    """A tuple on the page; ``kind`` is stable, tentative, or corrected: stable after all."""

    id: int
    stime: int
    kind: str
    at: float
    cells: list[Any]

    def plain(self) -> list[Any]:
        return [self.id, self.stime, self.kind, round(self.at, 3), self.cells]


class OutputView:
    """The end of one output as it stands. One thread writes, any may read."""

    def __init__(self, name: str, history: History, why: Callable[[], list[str]]) -> None:
        """``why``: what is wrong at the moment."""
        self.name = name
        self._history = history
        self._why = why
        self._lock = threading.Lock()
        self._rows: deque[Row] = deque(maxlen=KEPT_ROWS)
        self._tentative: deque[Row] = deque(maxlen=KEPT_ROWS)
        self._fresh: list[dict[str, Any]] = []
        self._told_from, self._told_to = 0, -1
        self.columns: list[str] = []
        self.stable_until = 0
        self.undone = 0

    def apply(self, event: ClientEvent, at: float, counts_from: int = 0) -> None:
        """Take what the client got at a moment; stable tuples below an id came before it looked."""
        match event:
            case Tuples():
                self._tuples(event, at, not event.stable or event.first_id >= counts_from)
            case Undo(below_stime):
                self._undo(below_stime)
            case Boundary(stime):
                self.stable_until = stime

    def _tuples(self, event: Tuples, at: float, counts: bool) -> None:
        stimes = event.table["stime"].cast(pa.int64()).to_numpy()
        if event.stable:
            corrected = (stimes >= self._told_from) & (stimes <= self._told_to)
            kinds = np.where(corrected, CORRECTED, STABLE)
        else:
            kinds = np.full(len(stimes), TENTATIVE)
            first, last = int(stimes.min()), int(stimes.max())
            self._told_from = min(first, self._told_from) if self._told_to >= 0 else first
            self._told_to = max(last, self._told_to)
        for kind in (STABLE, TENTATIVE, CORRECTED):
            found = stimes[kinds == kind]
            if counts and len(found):
                delay_s = max(0.0, at - int(found.min()) / 1e6)
                why = self._reasons(event) if kind == TENTATIVE else ()
                self._history.came(self.name, at, kind, len(found), delay_s, why)
        if event.stable and stimes.max(initial=0) > self._told_to:
            self._told_to = -1  # everything that was tentative is past
        self._show(event, stimes, kinds, at)

    def _reasons(self, event: Tuples) -> list[str]:
        """What the tuples themselves say they lack, then what else is wrong."""
        return [*([] if event.why is None else [show_why(event.why)]), *self._why()]

    def _show(self, event: Tuples, stimes: Any, kinds: Any, at: float) -> None:
        own = [name for name in event.table.column_names if name not in SYSTEM_COLUMNS]
        first = max(0, event.table.num_rows - _SHOWN_ROWS)
        end = event.table.select(own).slice(first)
        cells = [[_cell(each[name]) for name in own] for each in end.to_pylist()]
        rows = [
            Row(event.first_id + first + place, int(stimes[first + place]),
                str(kinds[first + place]), at, each)
            for place, each in enumerate(cells)
        ]  # fmt: skip
        with self._lock:
            self.columns = own
            (self._rows if event.stable else self._tentative).extend(rows)
            change = {"rows": [row.plain() for row in rows], "left_out": first, "columns": own}
            self._changed(change)

    def _undo(self, below_stime: int) -> None:
        with self._lock:
            kept = [row for row in self._tentative if row.stime >= below_stime]
            self.undone += len(self._tentative) - len(kept)
            self._tentative = deque(kept, maxlen=KEPT_ROWS)
            self._changed({"undo": below_stime})

    def _changed(self, change: dict[str, Any]) -> None:
        self._fresh.append(change)
        if sum(len(each.get("rows", ())) for each in self._fresh) > 2 * KEPT_ROWS:
            self._fresh = [{"whole": True}]  # nobody could follow that; they get all of it anew

    def fresh(self) -> list[dict[str, Any]]:
        """What has changed since this was asked last."""
        with self._lock:
            found, self._fresh = self._fresh, []
        return [self.whole()] if found[:1] == [{"whole": True}] else found

    def whole(self) -> dict[str, Any]:
        """All that is shown."""
        with self._lock:
            rows = [*self._rows, *self._tentative]
            return {
                "all": [row.plain() for row in rows],
                "columns": self.columns,
                "undone": self.undone,
            }


class OutputReader:
    """A thread that reads one output, and opens it anew when it cannot go on."""

    def __init__(self, deployment: Deployment, view: OutputView, latest: Callable[[], Look | None]):
        self._deployment = deployment
        self._view = view
        self._latest = latest
        self.problem: str | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"web-{view.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        before, failed = _SHOWN_ROWS, False
        while not self._stopping.is_set():
            end = position(self._latest(), self._view.name, 0)
            start = position(self._latest(), self._view.name, before)
            if start is not None and end is not None:
                try:
                    self._read(start, end)
                    before, failed = _SHOWN_ROWS, False
                except (HoldfastError, OSError, ValueError) as error:
                    # Logs may be trimmed while we ask for what they had: then from the end.
                    before = 0
                    self.problem = str(error) if failed else None
                    failed = True
            self._stopping.wait(_AGAIN_SECONDS if before == 0 else _READ_SECONDS)

    def _read(self, start: int, end: int) -> None:
        name = f"web-{os.getpid()}"
        with Client.of(self._deployment.path, self._view.name, name=name, next_id=start) as client:
            while not self._stopping.is_set():
                event = client.read(_READ_SECONDS)
                if event is not None:
                    self.problem = None
                    self._view.apply(event, time.time(), end)
                elif client.following is None and _begun_anew(self._latest(), self._view.name,
                                                              client.next_id):  # fmt: skip
                    return


def position(look: Look | None, output: str, before: int) -> int | None:
    """So many tuples before the end of a stream, or where its log begins; None if nobody serves it
    now."""
    if look is None:
        return None
    found = [
        (int(status["outputs"][output]), int(status.get("trimmed_below", {}).get(output, 0)))
        for status in look.nodes.values()
        if isinstance(status.get("outputs"), Mapping) and output in status["outputs"]
    ]
    if not found:
        return None
    end, trimmed = max(end for end, _ in found), max(first for _, first in found)
    return max(trimmed, end - before, 0)


def _begun_anew(look: Look | None, output: str, next_id: int) -> bool:
    """Whether the stream is shorter than what was read of it: its data directory is another."""
    end = position(look, output, 0)
    return end is not None and end < next_id


def _cell(value: Any) -> Any:
    """A value as JSON can have it and JavaScript can keep it."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -_EXACT < value < _EXACT else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime():
            return value.isoformat(sep=" ").removesuffix("+00:00")
        case Mapping():
            return ", ".join(f"{name} {_cell(each)}" for name, each in value.items())
    return str(value)
