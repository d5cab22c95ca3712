"""How long a session takes to start, in any version, over several starts.

``versions`` runs this from the root of each version and with its environment: of it only what there
has been from the beginning is used. Each start is a process of its own, and one goes before that
does not count.

    python benchmarks/versions_session.py STARTS
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

# The time counts from before the first import, until Spark has answered once.
START = """
import time
began = time.perf_counter()
from holdfast.spark.session import get_session
spark = get_session("local[2]")
there = time.perf_counter()
assert spark.range(3).count() == 3
print(there - began, time.perf_counter() - began)
"""
_SECONDS = 120


def start() -> tuple[float, float]:
    """After how many seconds a session was there, and after how many it had answered."""
    ran = subprocess.run(
        [sys.executable, "-c", START], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, check=True, timeout=_SECONDS,
    )  # fmt: skip
    there, answered = ran.stdout.split()[-2:]
    return float(there), float(answered)


def main() -> None:
    _, *starts = [start() for _ in range(1 + int(sys.argv[1]))]
    there, answered = zip(*starts, strict=True)
    told = {
        "session": {
            "session_s": round(statistics.median(there), 2),
            "first_answer_s": round(statistics.median(answered), 2),
            "starts": [round(each, 2) for each in there],
        }
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
