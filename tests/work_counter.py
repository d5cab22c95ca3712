"""Counts work instead of time: the same number on every machine, however busy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Work:
    """Counts the instructions of Python that run."""

    def __init__(self) -> None:
        self.steps = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        def trace(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
            frame.f_trace_opcodes = True
            self.steps += event == "opcode"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(before)
