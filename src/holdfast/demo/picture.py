"""Draws what the client saw and what state everybody was in, over one time axis."""

from __future__ import annotations

from typing import Any

from holdfast.demo.history import CORRECTED, STABLE, TENTATIVE, History

_INK, _GRID = "#1f2328", "#e4e7eb"
_KINDS = {STABLE: "#3b7dc4", TENTATIVE: "#e08a1d", CORRECTED: "#2f9e6b"}
_STATES = {
    "up": "#cfe3d6",
    "stable": "#cfe3d6",
    "cut off": "#e9a8a3",
    "dead": "#5b616b",
    "recovering": "#b7bcc5",
    "up_failure": "#f3cf94",
    "asking": "#f3cf94",
    "postponed": "#f3cf94",
    "stabilization": "#9ecff0",
}
_SHOWN = {
    "stable, up": "stable",
    "cut off": "cut off",
    "up failure": "up_failure",
    "stabilization": "stabilization",
    "dead": "dead",
    "recovering": "recovering",
}


def draw_history(path: str, history: History) -> None:
    """Delay of every answer, tentative tuples that stood, states."""
    # Imported here: matplotlib takes a second, and only the end needs it.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 7.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    delays, standing, states = figure.subplots(3, 1, sharex=True, height_ratios=(1.5, 0.8, 1.1))
    figure.suptitle(
        "holdfast demo: three sources, two replicas, one client", fontsize=12, color=_INK
    )
    _draw_delays(delays, history)
    _draw_standing(standing, history)
    _draw_states(states, history)
    end = max([history.seconds, *(each.at for each in history.answers)])
    for axes in (delays, standing, states):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        axes.set_xlim(0, end)
        for at, _ in history.marks:
            axes.axvline(at, color=_INK, lw=0.8, ls=":")
    for axes in (delays, standing):
        axes.grid(axis="y", color=_GRID, lw=0.8)
        axes.set_ylim(bottom=0)
    for at, text in history.marks:
        delays.annotate(
            text, (at, 1.0), (-2, 3), xycoords=("data", "axes fraction"), fontsize=8,
            textcoords="offset points", color=_INK,
        )  # fmt: skip
    states.set_xlabel("seconds")
    figure.savefig(path)


def _title(axes: Any, text: str, pad: float = 6) -> None:
    axes.set_title(text, loc="left", fontsize=10, color=_INK, pad=pad)


def _draw_delays(axes: Any, history: History) -> None:
    for kind, color in _KINDS.items():
        found = [each for each in history.answers if each.kind == kind]
        label = f"{kind} ({history.counts[kind]:,} tuples)"
        axes.plot([a.at for a in found], [a.delay_s for a in found], "o", color=color, ms=3.5,
                  label=label)  # fmt: skip
    axes.axhline(history.delay_s, color=_INK, lw=1.0, ls="--")
    axes.annotate(
        f"X = {history.delay_s:g} s", (1.0, history.delay_s), (-2, 3), fontsize=8, ha="right",
        xycoords=("axes fraction", "data"), textcoords="offset points", color=_INK,
    )  # fmt: skip
    axes.set_ylabel("seconds")
    axes.legend(frameon=False, fontsize=8, loc="upper right")
    _title(axes, "how long after its second each result came", pad=16)


def _draw_standing(axes: Any, history: History) -> None:
    points = [(0.0, 0), *history.standing, (history.now, history.tentative)]
    at, counts = [each[0] for each in points], [each[1] for each in points]
    axes.fill_between(at, counts, step="post", color=_KINDS[TENTATIVE], alpha=0.35, lw=0)
    axes.step(at, counts, where="post", color=_KINDS[TENTATIVE], lw=1.2)
    axes.set_ylabel("tuples")
    _title(axes, "tentative tuples that no stable ones have replaced")


def _draw_states(axes: Any, history: History) -> None:
    from matplotlib.patches import Patch

    names = sorted(history.states, reverse=True)
    for row, name in enumerate(names):
        changes = history.states[name]
        ends = [at for at, _ in changes[1:]] + [max(history.now, history.seconds)]
        for (at, state), end in zip(changes, ends, strict=True):
            axes.barh(row, end - at, left=at, height=0.7, color=_STATES.get(state, "#ffffff"))
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    patches = [Patch(color=_STATES[state], label=text) for text, state in _SHOWN.items()]
    axes.legend(handles=patches, frameon=False, fontsize=8, ncols=len(patches),
                loc="upper center", bbox_to_anchor=(0.5, -0.28))  # fmt: skip
    _title(axes, "states")
