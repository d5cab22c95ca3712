"""Live progress of a run on the terminal: rates, times, open windows, dead letters."""

from __future__ import annotations

import sys
import time
from collections import deque

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from holdfast.connect.console_sink import share_console
from holdfast.single.reports import AdvanceReport, Observer, RunSummary

_RATE_SECONDS = 5.0
_REFRESH_SECONDS = 0.25
_PLAIN_SECONDS = 5.0


class Meter:
    """Rates and times over the last few seconds."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.tuples_in = self.tuples_out = 0
        self.open_windows = self.dead_letters = 0
        self._recent: deque[tuple[float, AdvanceReport]] = deque()

    def add(self, report: AdvanceReport) -> None:
        self.tuples_in += report.tuples_in
        self.tuples_out += report.tuples_out
        self.open_windows, self.dead_letters = report.open_windows, report.dead_letters
        self._recent.append((time.monotonic(), report))

    def recent(self) -> list[AdvanceReport]:
        """The advances of the last few seconds."""
        horizon = time.monotonic() - _RATE_SECONDS
        while self._recent and self._recent[0][0] < horizon:
            self._recent.popleft()
        return [report for _, report in self._recent]

    @property
    def rate(self) -> float:
        """Tuples a second coming in."""
        span = min(_RATE_SECONDS, max(time.monotonic() - self.started, 0.1))
        return sum(report.tuples_in for report in self.recent()) / span

    @property
    def bucket_ms(self) -> float | None:
        """The median time of a bucket."""
        return median([report.bucket_seconds * 1000 for report in self.recent()])

    @property
    def latency_ms(self) -> float | None:
        """The median of the buckets' latencies."""
        known = [report.latency_seconds for report in self.recent()]
        return median([each * 1000 for each in known if each is not None])


def median(values: list[float]) -> float | None:
    """The middle value, if there is any."""
    return sorted(values)[len(values) // 2] if values else None


def show_ms(value: float | None) -> str:
    """A short text for milliseconds."""
    if value is None:
        return "–"
    return f"{value:.0f} ms" if value < 10_000 else f"{value / 1000:.1f} s"


class Progress(Observer):
    """A line that is kept current on a terminal, or a line every few seconds elsewhere."""

    def __init__(self, name: str, console: Console | None = None) -> None:
        self._name = name
        self._console = console or Console(stderr=True)
        self._meter = Meter()
        self._shown = time.monotonic()
        self._live: Live | None = None

    def started(self, resumed: bool) -> None:
        self._meter = Meter()
        self._shown = self._meter.started
        if resumed:
            self._console.print(f"[dim]{self._name}: going on where the last run stopped[/dim]")
        if self._console.is_terminal:
            self._live = Live(
                self._view(),
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
            if sys.stdout.isatty():
                share_console(self._console)

    def advanced(self, report: AdvanceReport) -> None:
        self._meter.add(report)

    def ticked(self) -> None:
        now = time.monotonic()
        if self._live is not None and now - self._shown >= _REFRESH_SECONDS:
            self._shown = now
            self._live.update(self._view(), refresh=True)
        elif self._live is None and now - self._shown >= _PLAIN_SECONDS:
            self._shown = now
            self._console.print(self._line(), soft_wrap=True, highlight=False)

    def ended(self, summary: RunSummary | None) -> None:
        if self._live is not None:
            self._live.stop()
            share_console(None)
        if summary is not None:
            self._console.print(show_summary(self._name, summary), soft_wrap=True, highlight=False)

    def _fields(self) -> list[tuple[str, str]]:
        meter = self._meter
        return [
            ("tuples/s", f"{meter.rate:,.0f}"),
            ("in", f"{meter.tuples_in:,}"),
            ("out", f"{meter.tuples_out:,}"),
            ("bucket", show_ms(meter.bucket_ms)),
            ("latency", show_ms(meter.latency_ms)),
            ("open windows", f"{meter.open_windows:,}"),
            ("dead letters", f"{meter.dead_letters:,}"),
        ]

    def _line(self) -> str:
        return f"{self._name}: " + ", ".join(f"{name} {value}" for name, value in self._fields())

    def _view(self) -> RenderableType:
        table = Table(box=None, padding=(0, 2), show_edge=False)
        for name, _ in [("", ""), *self._fields()]:
            table.add_column(name, justify="right", header_style="dim")
        table.add_row(f"[bold]{self._name}[/bold]", *(value for _, value in self._fields()))
        return table


def show_summary(name: str, summary: RunSummary) -> str:
    """One line on how a run ended."""
    out = ", ".join(f"{count:,} {output}" for output, count in summary.tuples_out.items())
    how = "done" if summary.finished else "stopped"
    text = (
        f"{name}: {how} after {summary.seconds:.1f} s: {summary.tuples_in:,} tuples in, {out} out"
    )
    if summary.dead_letters:
        text += f"; {summary.dead_letters:,} dead letters in {summary.dead_letter_file}"
    return text


def default_observer(name: str) -> Observer:
    """Progress when somebody is looking at a terminal, silence otherwise."""
    return Progress(name) if sys.stderr.isatty() else Observer()
