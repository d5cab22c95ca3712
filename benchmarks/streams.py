"""Streams: the log against the disk, Flight against bare Flight, end to end against Spark.

    make bench BENCH=streams
    make bench BENCH=streams ARGS=--quick

See streams_log.py, streams_flight.py and streams_e2e.py for what each figure is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from matplotlib.figure import Figure

from benchmarks import streams_e2e, streams_flight, streams_log
from benchmarks.machine import describe_machine
from benchmarks.record import record


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="four minutes")
    parser.add_argument("--record", action="store_true", help="write docs/results/streams.*")
    options = parser.parse_args(arguments)
    started = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {text}", file=sys.stderr, flush=True)

    tell("the log against the disk")
    log = streams_log.measure(15.0 if options.quick else 60.0)
    tell("one subscriber against bare Flight")
    flight = streams_flight.measure(rounds=3 if options.quick else 9)
    tell("end to end against Structured Streaming")
    e2e = streams_e2e.measure(15.0 if options.quick else 60.0, 1 if options.quick else 3)
    figures = {
        "bench": "streams",
        **{key: value for key, value in log.items() if not isinstance(value, dict)},
        **flight,
        **e2e,
        "seconds": round(time.monotonic() - started, 1),
        "machine": describe_machine(),
    }
    if options.record:
        command = "make bench BENCH=streams" + (" ARGS=--quick" if options.quick else "")
        record(figures, command, lambda figure: _draw(figure, figures))
    print(json.dumps(figures))
    return 0


def _draw(figure: Figure, figures: dict[str, Any]) -> None:
    """The four ratios, each with what is wanted, and the latencies."""
    ratios, latencies = figure.subplots(1, 2)
    wanted = {
        "append_ratio": ("log: append\nover plain writes", 0.5),
        "replay_ratio": ("log: replay\nover plain reads", 0.5),
        "flight_ratio": ("subscriber over\nbare Flight", 0.7),
    }
    for at, (key, (_, least)) in enumerate(wanted.items()):
        ratios.bar(at, figures[key], width=0.6, color="tab:blue")
        ratios.plot([at - 0.4, at + 0.4], [least, least], color="black", linestyle="--")
        ratios.text(at, figures[key], f"{figures[key]:.2f}", ha="center", va="bottom")
    ratios.set_xticks(range(len(wanted)), [label for label, _ in wanted.values()])
    ratios.set_ylabel("ratio; dashed: at least")
    systems = {"Holdfast": "e2e", "Structured Streaming": "structured_streaming"}
    for at, key in enumerate(("p50_ms", "p99_ms")):
        for shift, (system, prefix) in enumerate(systems.items()):
            value = figures[f"{prefix}_{key}"]
            color = "tab:blue" if shift == 0 else "tab:gray"
            label = system if at == 0 else None
            latencies.bar(at + 0.35 * shift, value, width=0.33, color=color, label=label)
            latencies.text(at + 0.35 * shift, value, f"{value:.0f}", ha="center", va="bottom")
    latencies.set_xticks([0.175, 1.175], ["p50", "p99"])
    latencies.set_ylabel("ms end to end")
    latencies.legend()


if __name__ == "__main__":
    sys.exit(main())
