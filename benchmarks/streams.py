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

from benchmarks import streams_e2e, streams_flight, streams_log
from benchmarks.machine import describe_machine


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three minutes")
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
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
