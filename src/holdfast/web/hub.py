"""Hands one message to everybody who watches: made once, however many they are."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

# A viewer that is further behind is cut off; its browser comes back and gets everything anew.
_WAITING = 100
_MOST_VIEWERS = 200
_KEEPALIVE_SECONDS = 15.0


class Hub:
    """All viewers. Everything but ``publish`` happens in the server's loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._viewers: set[asyncio.Queue[bytes | None]] = set()
        self._closed = False

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Whoever comes is let in, unless it was closed: a browser comes back at once."""
        if not self._closed:
            self._loop = loop

    def close(self) -> None:
        """Every stream ends."""
        self._loop, self._closed = None, True
        for queue in self._viewers:
            _end(queue)

    def end(self) -> None:
        """The same, from any thread: a server that stops would wait for those who watch."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has stopped meanwhile
                loop.call_soon_threadsafe(self.close)

    @property
    def count(self) -> int:
        return len(self._viewers)

    @property
    def is_full(self) -> bool:
        return len(self._viewers) >= _MOST_VIEWERS

    def publish(self, message: dict[str, Any]) -> None:
        """From any thread."""
        loop = self._loop
        if loop is not None and self._viewers:
            data = encoded("changes", message)
            try:
                loop.call_soon_threadsafe(self._hand_out, data)
            except RuntimeError:
                return  # the server has stopped meanwhile

    def _hand_out(self, data: bytes) -> None:
        for queue in self._viewers:
            if queue.qsize() >= _WAITING:
                _end(queue)
            else:
                queue.put_nowait(data)

    async def messages(self, snapshot: Callable[[], dict[str, Any]]) -> AsyncIterator[bytes]:
        """What one viewer is sent: everything as it is, then what changes."""
        if self._loop is None:
            return
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._viewers.add(queue)
        try:
            yield encoded("snapshot", await asyncio.to_thread(snapshot))
            while True:
                try:
                    data = await asyncio.wait_for(queue.get(), _KEEPALIVE_SECONDS)
                except TimeoutError:
                    data = b": still here\n\n"
                if data is None:
                    return
                yield data
        finally:
            self._viewers.discard(queue)


def encoded(event: str, message: dict[str, Any]) -> bytes:
    """As an event stream has it."""
    text = json.dumps(message, separators=(",", ":"), default=str)
    return f"event: {event}\ndata: {text}\n\n".encode()


def _end(queue: asyncio.Queue[bytes | None]) -> None:
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(None)
