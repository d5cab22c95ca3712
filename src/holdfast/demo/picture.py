"""Draws rate and latency over time."""

from __future__ import annotations

from holdfast.demo.history import History

_RATE, _LATENCY, _BUCKET, _ALERT, _INK = "#3b7dc4", "#d08a1d", "#8a8f98", "#c93c37", "#1f2328"


def draw_history(path: str, history: History) -> None:
    """Two charts over one time axis: tuples a second, and latency of every bucket."""
    # Imported here: matplotlib takes a second, and only the end needs it.
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 5.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    top: Axes
    bottom: Axes
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.2))
    figure.suptitle(
        f"holdfast demo: {history.servers} servers, {history.tuples_in:,} readings in "
        f"{history.elapsed:.0f} s, one process",
        fontsize=12,
        color=_INK,
    )
    _draw_rate(top, history)
    _draw_latency(bottom, history)
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e4e7eb", lw=0.8)
        axes.set_axisbelow(True)
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, max(history.elapsed, 1))
    figure.savefig(path)


def _draw_rate(axes, history: History) -> None:  # type: ignore[no-untyped-def]
    rates = history.rate_by_second()
    seconds = [second + 0.5 for second in range(len(rates))]
    axes.fill_between(seconds, rates, color=_RATE, alpha=0.18, lw=0)
    axes.plot(seconds, rates, color=_RATE, lw=1.8)
    axes.set_ylabel("readings a second")
    alerts = [moment.at for moment in history.advances for _ in range(moment.alerts)]
    axes.plot(alerts, [0.0] * len(alerts), "|", color=_ALERT, ms=12, mew=1.1, clip_on=False)
    axes.set_title(
        f"rate, mean of 3 s (red marks: {len(alerts)} alerts)", loc="left", fontsize=10, color=_INK
    )


def _draw_latency(axes, history: History) -> None:  # type: ignore[no-untyped-def]
    known = [(each.at, each.latency_ms) for each in history.advances if each.latency_ms is not None]
    axes.plot([at for at, _ in known], [ms for _, ms in known], color=_LATENCY, lw=1.2)
    axes.plot([at for at, _ in known], [ms for _, ms in known], "o", color=_LATENCY, ms=2.6)
    axes.plot(
        [moment.at for moment in history.advances],
        [moment.bucket_ms for moment in history.advances],
        color=_BUCKET,
        lw=1.2,
    )
    median, high = history.latency_ms(0.5), history.latency_ms(0.99)
    axes.axhline(median, color=_LATENCY, lw=0.9, ls="--")
    axes.set_ylabel("milliseconds")
    axes.set_xlabel("seconds")
    axes.set_title(
        f"latency, arrival to result, of each bucket's oldest reading (orange: median "
        f"{median:.0f} ms, p99 {high:.0f} ms); time the bucket took (grey)",
        loc="left",
        fontsize=10,
        color=_INK,
    )
