"""Says what is being done, and goes on saying it while it takes long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Nobody takes a program that spoke this long ago for dead.
EVERY_SECONDS = 5.0


@contextmanager
def said(what: str, say: Callable[[str], None], every_s: float = EVERY_SECONDS) -> Iterator[None]:
    """Say ``what`` is done now, and again every so often until it is."""
    done = threading.Event()
    started = time.monotonic()

    def repeat() -> None:
        while not done.wait(every_s):
            say(f"{what}: {time.monotonic() - started:.0f} s so far")

    say(what)
    thread = threading.Thread(target=repeat, name="holdfast-saying", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
