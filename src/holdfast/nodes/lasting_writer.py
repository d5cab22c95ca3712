"""A sink that may fail and work again: a full disk, a broken one, a database that is busy.

What was made durable last stays where it is. When a write fails, the sink is opened anew at that
place, which takes back what was written since, and is given all of it again. Until that works
nothing is acknowledged, so nothing is lost. What stands tentatively is told again, too: a sink that
is opened at a position takes it back, because it cannot know who opens it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pyarrow as pa

from holdfast.connect.sink import Position, Writer
from holdfast.core.frame import Why
from holdfast.stream_events import not_older

# What a sink is told.
_Step = Callable[[Writer], None]
_Tentative = tuple[pa.Table, Why | None]


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
        # What came since it was durable last; boundaries are not kept, a later one says more.
        self._since: list[_Step] = []
        # What stood tentatively when it was durable last, and what does now.
        self._stood: list[_Tentative] = []
        self._stands: list[_Tentative] = []

    @property
    def fails(self) -> bool:
        """Whether it must be flushed before it takes more."""
        return self._writer is None

    @property
    def waits(self) -> bool:
        """Whether something is not durable yet."""
        return bool(self._since)

    @property
    def ready(self) -> bool:
        """Whether it can be flushed; if not, it waits for what will come."""
        return self._writer is None or self._writer.ready

    def write(self, table: pa.Table) -> None:
        """Take tuples, whether the sink works or not."""
        self._do(lambda writer: writer.write(table))

    def write_tentative(self, table: pa.Table, why: Why | None) -> None:
        """Take tuples that may be taken back."""
        self._stands = [*self._stands, (table, why)]
        self._do(lambda writer: writer.write_tentative(table, why))

    def undo(self, below_stime: int) -> None:
        """Take back older tentative tuples."""
        kept = [(not_older(table, below_stime), why) for table, why in self._stands]
        self._stands = [(table, why) for table, why in kept if table.num_rows]
        self._do(lambda writer: writer.undo(below_stime))

    def boundary(self, stime: int) -> None:
        """Say how far the stable tuples are complete; not said again if the sink fails."""
        self._tell(lambda writer: writer.boundary(stime))

    def _do(self, step: _Step) -> None:
        self._since.append(step)
        self._tell(step)

    def _tell(self, step: _Step) -> None:
        if self._writer is not None:
            try:
                step(self._writer)
            except OSError as error:
                self._failed(error)

    def flush(self) -> Position | None:
        """Make everything durable; where to go on from, None if that does not work now."""
        try:
            if self._writer is None:
                self._writer = self._open(self._position)
                for table, why in self._stood:
                    self._writer.write_tentative(table, why)
                for step in self._since:
                    step(self._writer)
            self._position = self._writer.flush()
        except OSError as error:
            self._failed(error)
            return None
        self._stood = self._stands
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
