"""Runs the demonstration."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from holdfast.connect.callback_sink import call
from holdfast.demo.history import History
from holdfast.demo.monitoring import BUCKET, REGIONS, monitoring_network
from holdfast.demo.picture import draw_history
from holdfast.demo.readings import Fleet, readings
from holdfast.demo.view import LiveView, PlainView
from holdfast.errors import InputError
from holdfast.runtime.run import run


def run_demo(seconds: float, servers: int, picture: str) -> int:
    """Generate readings for so many seconds, show what the network makes of them, draw it."""
    if servers < 2 * len(REGIONS) or seconds <= 0:
        raise InputError(f"the demo needs at least {2 * len(REGIONS)} servers and some time")
    if Path(picture).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"the picture's name must end in .png, .svg or .pdf, got {picture!r}")
    console = Console()
    with console.status("Building the network …"):
        network = monitoring_network()
    history = History(seconds, servers)
    view = (LiveView if console.is_terminal else PlainView)(console, history)
    run(
        network,
        readings(Fleet(servers, time.time_ns() // 1000)),
        {name: call(lambda _: None) for name in network.outputs},
        observer=view,
    )
    if history.advances:
        console.print(_report(history), highlight=False)
        draw_history(picture, history)
        console.print(f"Rate and latency over time are drawn in [bold]{picture}[/bold]")
    return 0


def _report(history: History) -> str:
    rate = history.tuples_in / max(history.elapsed, 0.1)
    counts = history.counts
    return (
        f"[bold]{history.tuples_in:,}[/bold] readings in {history.elapsed:.0f} s "
        f"({rate:,.0f} tuples/s); {counts['busy_server']} alerts about busy servers, "
        f"{counts['slow_network']} about the network\n"
        f"Latency from a reading's arrival to its results: median "
        f"[bold]{history.latency_ms(0.5):.0f} ms[/bold], 99 % below "
        f"{history.latency_ms(0.99):.0f} ms. It is that of the oldest reading of each "
        f"{BUCKET} bucket; the bucket itself took {history.bucket_ms(0.5):.0f} ms"
    )
