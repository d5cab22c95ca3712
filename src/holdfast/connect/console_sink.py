"""Results on the terminal, a line for each tuple."""

from __future__ import annotations

import datetime
import sys
from dataclasses import dataclass

import pyarrow as pa
from rich.console import Console
from rich.text import Text

from holdfast.connect.sink import Position, Sink, Writer
from holdfast.core.frame import Why
from holdfast.times import show_moment
from holdfast.why_words import show_why

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
    tentative: bool = False

    def open(self, output: str, schema: pa.Schema, position: Position | None) -> Writer:
        return ConsoleWriter(output, self.lines)

    def __str__(self) -> str:
        return "the console"


def write_console(lines: int = _MOST_LINES, tentative: bool = False) -> ConsoleSink:
    """Print tuples, at most ``lines`` of each bucket.

    With ``tentative`` also those that may be taken back, in yellow and with the reason, and when
    they are.
    """
    return ConsoleSink(lines, tentative)


class ConsoleWriter(Writer):
    """Prints time, output name, and the columns with their names."""

    def __init__(self, output: str, lines: int) -> None:
        self._output = output
        self._lines = lines

    def write(self, table: pa.Table) -> None:
        self._print_rows(table, "default", "")

    def write_tentative(self, table: pa.Table, why: Why | None) -> None:
        said = "tentative" if why is None else f"tentative: {show_why(why)}"
        self._print_rows(table, "yellow", said)

    def undo(self, below_stime: int) -> None:
        before = show_moment(below_stime)
        text = f"{self._output} taken back: what is tentative before {before}"
        self._print(Text(text, style="dim"))

    def _print_rows(self, table: pa.Table, style: str, note: str) -> None:
        for row in table.slice(0, self._lines).to_pylist():
            line = _line(self._output, row, style)
            if note:
                line.append(f"  {note}", style="yellow dim")
            self._print(line)
        if table.num_rows > self._lines:
            more = table.num_rows - self._lines
            self._print(Text(f"  … and {more:,} more tuples of {self._output}", style="dim"))

    def _print(self, line: Text) -> None:
        # Made anew each time, because sys.stdout may be another by now.
        console = _shared or Console(file=sys.stdout)
        console.print(line, soft_wrap=True, highlight=False)


def _line(output: str, row: dict[str, object], style: str = "default") -> Text:
    stime = row["stime"]
    assert isinstance(stime, datetime.datetime)
    line = Text(f"{stime:%Y-%m-%d %H:%M:%S}.{stime.microsecond // 1000:03}", style="dim")
    line.append(f" {output}", style="bold cyan")
    for name, value in row.items():
        if name not in ("stime", "seq"):
            line.append(f"  {name}=", style="dim")
            line.append(show_value(value), style=style)
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
