"""Results on the terminal, a line for each tuple."""

from __future__ import annotations

import datetime
import sys
from dataclasses import dataclass

import pyarrow as pa
from rich.console import Console
from rich.text import Text

from holdfast.connect.sink import Position, Sink, Writer

_MOST_LINES = 20
# The console of a live display on the same terminal: only through it can lines pass above it.
_shared: Console | None = None


def share_console(console: Console | None) -> None:
    """Print through this console from now on; None ends that."""
    global _shared
    _shared = console


@dataclass(frozen=True)
class ConsoleSink(Sink):
    """Standard output."""

    lines: int

    def open(self, output: str, schema: pa.Schema, position: Position | None) -> Writer:
        return ConsoleWriter(output, self.lines)

    def __str__(self) -> str:
        return "the console"


def write_console(lines: int = _MOST_LINES) -> ConsoleSink:
    """Print tuples, at most ``lines`` of each bucket."""
    return ConsoleSink(lines)


class ConsoleWriter(Writer):
    """Prints time, output name, and the columns with their names."""

    def __init__(self, output: str, lines: int) -> None:
        self._output = output
        self._lines = lines

    def write(self, table: pa.Table) -> None:
        for row in table.slice(0, self._lines).to_pylist():
            self._print(_line(self._output, row))
        if table.num_rows > self._lines:
            more = table.num_rows - self._lines
            self._print(Text(f"  … and {more:,} more tuples of {self._output}", style="dim"))

    def _print(self, line: Text) -> None:
        # Made anew each time, because sys.stdout may be another by now.
        console = _shared or Console(file=sys.stdout)
        console.print(line, soft_wrap=True, highlight=False)


def _line(output: str, row: dict[str, object]) -> Text:
    stime = row["stime"]
    assert isinstance(stime, datetime.datetime)
    line = Text(f"{stime:%Y-%m-%d %H:%M:%S}.{stime.microsecond // 1000:03}", style="dim")
    line.append(f" {output}", style="bold cyan")
    for name, value in row.items():
        if name not in ("stime", "seq"):
            line.append(f"  {name}=", style="dim")
            line.append(show_value(value), style="default")
    return line


def show_value(value: object) -> str:
    """A short text for a value."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime.datetime):
        text = f"{value:%H:%M:%S}"
        return f"{text}.{value.microsecond // 1000:03}" if value.microsecond else text
    if isinstance(value, dict) and value.keys() == {"start", "end"}:
        return f"{show_value(value['start'])}–{show_value(value['end'])}"
    return str(value)
