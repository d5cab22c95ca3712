"""Keeps what a benchmark printed: ``docs/results/<name>.json`` and a picture beside it.

Only ``--record`` writes there, and only from the run itself, so that every figure in the
documentation is one that a run printed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.web_views import RESULTS, with_view

__all__ = ["RESULTS", "record", "recorded"]


def record(
    summary: dict[str, Any],
    command: str,
    draw: Callable[[Figure], None] | None = None,
    page: str | None = None,
    size: tuple[float, float] = (9, 3.4),
) -> None:
    """Write the summary with the command that gave it; draw its picture, write its page, if any."""
    mpl.use("Agg")
    RESULTS.mkdir(parents=True, exist_ok=True)
    name = summary["bench"]
    told = {"command": command, **summary}
    (RESULTS / f"{name}.json").write_text(json.dumps(told, indent=2) + "\n")
    if draw is not None:
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(RESULTS / f"{name}.png", dpi=110)
    if page is not None:
        (RESULTS / f"{name}.md").write_text(with_view(name, page))


def recorded(name: str) -> dict[str, Any]:
    """What an earlier run left, if one did."""
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found
