"""What the demonstration shows while it runs: a live screen, or plain lines."""

from __future__ import annotations

import time
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.demo.history import CORRECTED, STABLE, TENTATIVE, Answer, History

KIND_STYLES = {STABLE: "green", TENTATIVE: "yellow", CORRECTED: "cyan"}
_STATE_STYLES = {"up": "green", "stable": "green", "cut off": "red", "dead": "red"}
_REFRESH_SECONDS = 0.2
_SHOWN_ANSWERS, _SHOWN_NEWS = 14, 5


def sentence(answer: Answer) -> str:
    """One answer in one line."""
    when = time.strftime("%H:%M:%S", time.gmtime(answer.stime // 1_000_000))
    said = (
        f"{when}  {answer.probes:5,} probes  mean {answer.latency_ms:4.0f} ms  "
        f"slowest {answer.slowest} {answer.slowest_ms:4.0f} ms  {answer.kind:<9}"
    )
    if answer.before is not None:
        return f"{said} had {answer.before:,} probes"
    return f"{said} after {answer.delay_s:.1f} s"


class View(Protocol):
    """Where the demonstration is shown."""

    def say(self, text: str) -> None:
        """Something happened, or is about to."""

    def show(self, answers: list[Answer]) -> None:
        """The client got these."""

    def tick(self) -> None:
        """Called often."""

    def close(self) -> None: ...


class PlainView:
    """A line for each answer and each event; for logs and pipes."""

    def __init__(self, console: Console, history: History) -> None:
        self._console = console
        self._history = history
        self._states: dict[str, str] = {}

    def say(self, text: str) -> None:
        self._print(f"── {text}")

    def show(self, answers: list[Answer]) -> None:
        for answer in answers:
            self._print(f"{self._when(answer.at)}  {sentence(answer)}")

    def tick(self) -> None:
        for name in self._history.states:
            state = self._history.state(name)
            if self._states.get(name) != state:
                self._states[name] = state
                self._print(f"{self._when(self._history.now)}  {name} is {state}")

    def _when(self, at: float) -> str:
        return f"{at:5.1f} s" if self._history.started else "warm-up"

    def close(self) -> None:
        self.tick()

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


class LiveView:
    """Processes, answers and news, redrawn a few times a second."""

    def __init__(self, console: Console, history: History) -> None:
        self._history = history
        self._news: list[str] = []
        self._drawn = 0.0
        self._live = Live(self._screen(), console=console, auto_refresh=False)
        self._live.start()

    def say(self, text: str) -> None:
        self._news.append(text)
        self._draw()

    def show(self, answers: list[Answer]) -> None:
        pass  # with the next tick

    def tick(self) -> None:
        if time.monotonic() - self._drawn >= _REFRESH_SECONDS:
            self._draw()

    def close(self) -> None:
        self._draw()
        self._live.stop()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        self._live.update(self._screen(), refresh=True)

    def _screen(self) -> RenderableType:
        history = self._history
        done = min(max(0.0, history.now), history.seconds) if history.started else 0.0
        title = Table.grid(expand=True, padding=(0, 1))
        title.add_column()
        title.add_column(ratio=1)
        title.add_column(justify="right")
        title.add_row(
            f"[bold]Holdfast[/bold] answers within X = {history.delay_s:g} s",
            ProgressBar(total=history.seconds, completed=done),
            f"{done:.0f} of {history.seconds:.0f} s",
        )
        news = [Text(text, style="bold") for text in self._news[-_SHOWN_NEWS:]]
        news += [Text("")] * (_SHOWN_NEWS - len(news))
        return Group(
            title,
            Panel(Group(*news), title="what happens", border_style="dim"),
            Panel(self._processes(), title="who is there", border_style="dim"),
            Panel(self._answers(), title=self._counted(), border_style="dim"),
        )

    def _processes(self) -> RenderableType:
        names = sorted(self._history.states)
        table = Table.grid(padding=(0, 3))
        for _ in names:
            table.add_column(no_wrap=True)
        states = [self._history.state(name) for name in names]
        table.add_row(*(Text(name, style="dim") for name in names))
        table.add_row(*(Text(each, style=_STATE_STYLES.get(each, "yellow")) for each in states))
        return table

    def _answers(self) -> RenderableType:
        shown = self._history.answers[-_SHOWN_ANSWERS:]
        lines = [Text(sentence(each), style=KIND_STYLES[each.kind]) for each in shown]
        return Group(*lines, *[Text("")] * (_SHOWN_ANSWERS - len(lines)))

    def _counted(self) -> str:
        counts = self._history.counts
        return (
            f"results: {counts[STABLE]:,} stable, {counts[TENTATIVE]:,} tentative, "
            f"{counts[CORRECTED]:,} corrected, {self._history.tentative:,} still tentative"
        )
