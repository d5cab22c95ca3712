"""A sink that may fail and work again: a full disk, a broken one, a database that is busy.

What was made durable last stays where it is. When a write fails, the sink is opened anew at that
place, which takes back what was written since, and is given all of it again. Until that works
nothing is acknowledged, so nothing is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pyarrow as pa

from holdfast.connect.sink import Position, Writer


class LastingWriter:
    """Writes into a sink what a client reads; of one thread."""

    def __init__(
        self,
        open_sink: Callable[[Position | None], Writer],
        position: Position | None,
        on_problem: Callable[[str | None], None],
    ) -> None:
        """``on_problem`` is told why it does not work, and None when it does again."""
        self._open = open_sink
        self._position = position
        self._on_problem = on_problem
        self._writer: Writer | None = open_sink(position)
        # What came since it was durable last.
        self._since: list[pa.Table] = []

    @property
    def fails(self) -> bool:
        """Whether it must be flushed before it takes more."""
        return self._writer is None

    @property
    def waits(self) -> bool:
        """Whether something is not durable yet."""
        return bool(self._since)

    def write(self, table: pa.Table) -> None:
        """Take tuples, whether the sink works or not."""
        self._since.append(table)
        if self._writer is not None:
            try:
                self._writer.write(table)
            except OSError as error:
                self._failed(error)

    def flush(self) -> Position | None:
        """Make everything durable; where to go on from, None if that does not work now."""
        try:
            if self._writer is None:
                self._writer = self._open(self._position)
                for table in self._since:
                    self._writer.write(table)
            self._position = self._writer.flush()
        except OSError as error:
            self._failed(error)
            return None
        self._since.clear()
        self._on_problem(None)
        return self._position

    def close(self) -> None:
        """Let go of files; nothing is lost that was flushed."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(OSError):
                writer.close()

    def _failed(self, error: OSError) -> None:
        self.close()
        self._on_problem(f"the sink cannot be written: {error}. It is tried again")
