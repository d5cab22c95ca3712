"""No thread of a process dies in silence: what nobody catches ends the process, with the story."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_OWN = str(Path(__file__).parents[1])


def watch_threads(
    on_fatal: Callable[[BaseException], None], on_foreign: Callable[[str, BaseException], None]
) -> None:
    """Have ``on_fatal`` told of an error that ends a thread in which code of ours runs.

    Threads of libraries alone are theirs to look after: ``on_foreign`` gets their name.
    """

    def hook(found: threading.ExceptHookArgs) -> None:
        error = found.exc_value or found.exc_type()
        if is_ours(found.exc_traceback):
            on_fatal(error)
        else:
            on_foreign("?" if found.thread is None else found.thread.name, error)

    threading.excepthook = hook


def is_ours(trace: TracebackType | None) -> bool:
    """Whether an error came through code of this package."""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(_OWN):
            return True
        trace = trace.tb_next
    return False
