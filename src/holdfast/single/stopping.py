"""Ctrl-C and SIGTERM: finish the bucket, checkpoint, leave."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

import pyarrow as pa


class Stop:
    """Notes a request to stop while it is entered; a second one interrupts at once."""

    def __init__(self) -> None:
        self.requested = False
        self._old: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            # Arrow would cancel what it is reading, on its own account, and fail the run.
            pa.enable_signal_handlers(False)
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def request(self) -> None:
        """Stop after the bucket at hand."""
        self.requested = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
