"""Keeps what a benchmark printed: ``docs/results/<name>.json`` and a picture beside it.

Only ``--record`` writes there, and only from the run itself, so that every figure in the
documentation is one that a run printed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def record(summary: dict[str, Any], command: str, draw: Callable[[Figure], None]) -> None:
    """Write the summary with the command that gave it, and draw its picture."""
    mpl.use("Agg")
    RESULTS.mkdir(parents=True, exist_ok=True)
    name = summary["bench"]
    told = {"command": command, **summary}
    (RESULTS / f"{name}.json").write_text(json.dumps(told, indent=2) + "\n")
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    draw(figure)
    figure.savefig(RESULTS / f"{name}.png", dpi=110)
