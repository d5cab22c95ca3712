"""What the demonstration shows while it runs: a live screen, or plain lines."""

from __future__ import annotations

import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.demo.history import History
from holdfast.runtime.reports import AdvanceReport, Observer, RunSummary

_BARS = " ▁▂▃▄▅▆▇█"
_REFRESH_SECONDS = 0.2
_PLAIN_SECONDS = 5.0
_WARM_BUCKETS, _WARM_BUCKET_SECONDS = 5, 0.8
_LONGEST_WARM_UP_SECONDS = 25.0
_WARMING_UP = "Spark compiles the network's plans and warms up …"
_STYLES = {"busy_server": "yellow", "slow_network": "red"}
_GRAPH = """\
load    ×3 regions ─▶ union ─┬──▶ average per region, 5 s ─▶ [green]region_load[/green]
                             │
                             └──────────────┐
                                            ▼
latency ×3 regions ─▶ union ─▶ > 250 ms ─▶ join ─┬─▶ busy far end ─▶ [yellow]busy_server[/yellow]
                                                 └─▶ idle far end ─▶ [red]slow_network[/red]"""


def sparkline(values: list[float], width: int, top: float | None = None) -> str:
    """The last ``width`` values as a row of bars."""
    shown = values[-width:]
    highest = top or max(shown, default=0.0) or 1.0
    steps = len(_BARS) - 1
    bars = [_BARS[min(steps, max(1, round(value / highest * steps)))] for value in shown]
    return "".join(bars).rjust(width)


class DemoView(Observer):
    """Waits until Spark has warmed up, then keeps the history for as long as asked."""

    def __init__(self, console: Console, history: History) -> None:
        self._console = console
        self._history = history
        self._warm = False
        self._taken = 0
        self._created = time.monotonic()

    def advanced(self, report: AdvanceReport) -> None:
        if self._warm:
            self.show(self._history.add(report))
            return
        self._taken += 1 if report.tuples_in else 0
        waited = time.monotonic() - self._created
        quick = report.bucket_seconds < _WARM_BUCKET_SECONDS and self._taken >= _WARM_BUCKETS
        if quick or waited > _LONGEST_WARM_UP_SECONDS:
            self._warm = True
            self._history.start()
            self.begin()

    def ticked(self) -> None:
        if self._warm and self._history.now >= self._history.seconds:
            self.wants_stop = True

    def begin(self) -> None:
        """The warm-up is over."""

    def show(self, alerts: list[tuple[str, str]]) -> None:
        """An advance brought these alerts."""


class LiveView(DemoView):
    """Rates, latency, latest alerts and the graph, redrawn a few times a second."""

    def __init__(self, console: Console, history: History) -> None:
        super().__init__(console, history)
        self._drawn = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def started(self, resumed: bool) -> None:
        self._live.start()
        self._live.update(Text(_WARMING_UP, style="dim"), refresh=True)

    def ticked(self) -> None:
        super().ticked()
        now = time.monotonic()
        if self._warm and now - self._drawn >= _REFRESH_SECONDS:
            self._drawn = now
            self._live.update(self._screen(), refresh=True)

    def ended(self, summary: RunSummary | None) -> None:
        if self._warm:
            self._live.update(self._screen(), refresh=True)
        self._live.stop()

    def _screen(self) -> RenderableType:
        history = self._history
        done = min(history.now, history.seconds)
        title = Table.grid(expand=True, padding=(0, 1))
        title.add_column()
        title.add_column(ratio=1)
        title.add_column(justify="right")
        title.add_row(
            f"[bold]Holdfast[/bold] watches {history.servers} servers",
            ProgressBar(total=history.seconds, completed=done),
            f"{done:.0f} of {history.seconds:.0f} s",
        )
        return Group(
            title,
            Panel(Text.from_markup(_GRAPH), title="the network", border_style="dim"),
            self._figures(),
            self._alerts(),
        )

    def _figures(self) -> RenderableType:
        history = self._history
        rates, latencies = history.rate_by_second(), history.latency_by_second()
        width = max(20, min(60, self._console.width - 46))
        last = history.advances[-1] if history.advances else None
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", min_width=9)
        table.add_column(justify="right", min_width=14, style="bold")
        table.add_column(style="cyan", no_wrap=True)
        rate = f"{rates[-1]:,.0f} tuples/s" if rates else "–"
        latency = f"{latencies[-1]:,.0f} ms" if latencies else "–"
        table.add_row("rate", rate, sparkline(rates, width))
        table.add_row("latency", latency, sparkline(latencies, width))
        table.add_row(
            "bucket",
            f"{last.bucket_ms:,.0f} ms" if last else "–",
            Text(
                f"{last.open_windows if last else 0:,} rows of state, "
                f"{history.tuples_in:,} tuples so far",
                style="dim",
            ),
        )
        loads = [f"{region} {cpu:.0%}" for region, cpu in sorted(history.region_load.items())]
        table.add_row("load", "", Text("   ".join(loads) or "–", style="green"))
        return Panel(table, title="rate and latency", border_style="dim")

    def _alerts(self) -> RenderableType:
        history = self._history
        lines = [Text(text, style=_STYLES[output]) for output, text in list(history.alerts)[-8:]]
        lines += [Text("")] * (8 - len(lines))
        counts = history.counts
        title = (
            f"alerts: {counts['busy_server']} busy server, {counts['slow_network']} slow network"
        )
        return Panel(Group(*lines), title=title, border_style="dim")


class PlainView(DemoView):
    """A line every few seconds, and each alert; for logs and pipes."""

    def __init__(self, console: Console, history: History) -> None:
        super().__init__(console, history)
        self._next = _PLAIN_SECONDS

    def started(self, resumed: bool) -> None:
        self._print(_WARMING_UP)

    def begin(self) -> None:
        self._print(f"Holdfast watches {self._history.servers} servers")

    def show(self, alerts: list[tuple[str, str]]) -> None:
        for output, text in alerts:
            self._print(f"{output:<12}  {text}")

    def ticked(self) -> None:
        super().ticked()
        history = self._history
        if self._warm and history.now >= self._next and history.advances:
            self._next += _PLAIN_SECONDS
            last = history.advances[-1]
            rate = history.tuples_in / max(history.elapsed, 0.1)
            self._print(
                f"{history.now:4.0f} s  {rate:,.0f} tuples/s  latency {last.latency_ms or 0:.0f} ms"
                f"  bucket {last.bucket_ms:.0f} ms  {last.open_windows:,} rows of state"
            )

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)
