"""What the DPC benchmarks have in common: options, the JSON line, and the page of results.

With ``--record`` a benchmark writes ``docs/results/<name>.json``, the picture beside it, and
``<name>.md``: what the paper saw, the table of this run, and how to read it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from benchmarks.machine import describe_machine
from benchmarks.record import RESULTS, record
from benchmarks.web_views import with_view

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What a run found.

    figures  the keys of the JSON line that are single numbers.
    columns  and ``rows``: the table behind them.
    seconds  what all of it took, where it was run in parts.
    """

    figures: dict[str, Any]
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    draw: Callable[[Figure], None]
    seconds: float | None = None


@dataclass(frozen=True)
class Benchmark:
    """One figure or table of the paper.

    paper  what the paper saw. notes: how ours is to be read, and where it differs.
    """

    name: str
    title: str
    paper: str
    notes: str
    measure: Callable[[bool, Tell], Outcome] = field(repr=False)

    def main(self, arguments: list[str] | None = None) -> int:
        parser = argparse.ArgumentParser(description=self.title)
        parser.add_argument("--quick", action="store_true", help="three minutes on two cores")
        parser.add_argument("--record", action="store_true", help="write docs/results")
        options = parser.parse_args(arguments)
        started = time.monotonic()

        def tell(text: str) -> None:
            print(f"{time.monotonic() - started:6.1f} s  {text}", file=sys.stderr, flush=True)

        outcome = self.measure(options.quick, tell)
        seconds = time.monotonic() - started if outcome.seconds is None else outcome.seconds
        summary = {
            "bench": self.name,
            **outcome.figures,
            "quick": options.quick,
            "seconds": round(seconds, 1),
            "machine": describe_machine(),
        }
        rows = [dict(zip(outcome.columns, row, strict=True)) for row in outcome.rows]
        if options.record:
            command = f"make bench BENCH={self.name}" + (" ARGS=--quick" if options.quick else "")
            record({**summary, "rows": rows}, command, outcome.draw)
            self._write_page(summary, outcome, command)
        print(json.dumps({**summary, "rows": rows}))
        return 0

    def _write_page(self, summary: dict[str, Any], outcome: Outcome, command: str) -> None:
        machine = summary["machine"]
        lines = [
            f"# {self.title}",
            "",
            f"![{self.title}]({self.name}.png)",
            "",
            "## What the paper saw",
            "",
            self.paper.strip(),
            "",
            "## What we saw",
            "",
            *_table(outcome.columns, outcome.rows),
            "",
            *(f"- `{key}`: {value}" for key, value in outcome.figures.items()),
            "",
            f"`{command}`, {summary['seconds']:.0f} s on {machine['cores']} cores "
            f"({machine['cpu']}, {machine['memory_gib']} GiB), {machine['date']}; "
            f"[the run as JSON]({self.name}.json).",
            "",
            "## How to read it",
            "",
            self.notes.strip(),
        ]
        page = with_view(self.name, "\n".join(lines) + "\n")
        (RESULTS / f"{self.name}.md").write_text(page)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    return [
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
        *(f"| {' | '.join(str(value) for value in row)} |" for row in rows),
    ]
