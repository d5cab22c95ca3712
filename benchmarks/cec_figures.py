"""The paper's figures 5 to 9 with ours; where the paper's text has numbers, they are grey."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

OURS, PAPER = "#1f6f8b", "#b0b0b0"
# From the paper's text: extent in frames, EC-load in seconds, replay in megabytes.
PAPER_Q: dict[str, dict[int, float]] = {
    "extent": {1: 120_000, 2: 180_000, 8: 500_000},
    "ec_load_s": {1: 3.5, 2: 5.0, 4: 14.0, 8: 27.0},
    "replay_mb": {1: 25.0, 2: 50.0, 8: 200.0},
}
PAPER_U: dict[str, dict[int, float]] = {
    "extent": {125_000: 120_000, 1_000_000: 230_000},
    "ec_load_s": {125_000: 2.5, 1_000_000: 6.7},
    "replay_mb": {125_000: 20.0, 1_000_000: 90.0},
}
PAPER_RESPONSE_S: dict[int, float] = {25: 32.5, 50: 21.5, 100: 18.5, 250: 16.5}
LABELS = {
    "checks": "states checked",
    "extent": "extent (frames)",
    "ec_load_s": "EC-load (s)",
    "replay_mb": "replayed (MB)",
}


def draw(figure: Figure, told: dict[str, Any]) -> None:
    """Three rows: figures 5, 8 and 9; figure 6; figure 7."""
    figure.set_size_inches(12, 9)
    axes = figure.subplots(3, 4)
    found = told["figures"]
    _throughput(axes[0][0], found["5"])
    _recovery(axes[0][1], found["structured"])
    periods = found["8 and 9"]
    _line(axes[0][2], periods, "response_s", PAPER_RESPONSE_S)
    without = found["response_s without checkpoints"]
    axes[0][2].axhline(without, color=OURS, linestyle=":", linewidth=1)
    axes[0][2].set(title="8: response time", xlabel="CP (ms)", ylabel="seconds")
    _line(axes[0][3], periods, "extent", {})
    axes[0][3].set(title="9: extent", xlabel="CP (ms)", ylabel="frames")
    for at, key in enumerate(LABELS):
        _line(axes[1][at], found["6"], key, PAPER_Q.get(key, {}))
        axes[1][at].set(title=f"6: {LABELS[key]}", xlabel="Q / open windows")
        _line(axes[2][at], found["7"], key, PAPER_U.get(key, {}))
        axes[2][at].set(title=f"7: {LABELS[key]}", xlabel="U (tuples)")
        axes[2][at].ticklabel_format(axis="x", style="sci", scilimits=(3, 3))


def _throughput(axes: Axes, workloads: dict[str, Any]) -> None:
    modes = {"open/net": "#9cc5d3", "open/disk": "#5b9ab0", "continuous": OURS}
    for at, (mode, color) in enumerate(modes.items()):
        places = [place + 0.27 * (at - 1) for place in range(len(workloads))]
        ratios = [found[mode]["ratio"] for found in workloads.values()]
        axes.bar(places, ratios, 0.25, color=color, label=mode)
    axes.axhline(0.9, color="black", linestyle=":", linewidth=1)
    axes.set_xticks(range(len(workloads)), list(workloads))
    axes.set(title="5: throughput over none", ylim=(0, 1.3))
    axes.legend(fontsize=6, ncols=3, loc="upper center")


def _recovery(axes: Axes, found: dict[str, Any]) -> None:
    axes.bar(
        ["Holdfast", "Structured\nStreaming"],
        [found["holdfast_s"], found["structured_s"]],
        color=[OURS, PAPER],
    )
    axes.set(title="recovery of 90,000 windows", ylabel="seconds")


def _line(axes: Axes, found: dict[str, Any], key: str, paper: dict[int, float]) -> None:
    places = [int(each) for each in found]
    axes.plot(places, [each[key] for each in found.values()], "o-", color=OURS, label="Holdfast")
    if paper:
        axes.plot(list(paper), list(paper.values()), "s--", color=PAPER, label="paper")
        axes.legend(fontsize=7)
    axes.set_ylim(bottom=0)
