"""Where Flink is: an environment of its own that ``scripts/flink`` makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Fetching it takes minutes, once.
FETCH_SECONDS = 1800.0


def find_flink(quick: bool) -> Path | None:
    """The Python of Flink's environment; None, and why, where it cannot be had.

    Made if need be, unless it has to be quick.
    """
    try:
        found = subprocess.run(
            [str(ROOT / "scripts" / "flink"), *(["--made"] if quick else [])],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=FETCH_SECONDS,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"Flink cannot be had here, so nothing is said about it: {error}", file=sys.stderr)
        return None
    return Path(found.stdout.splitlines()[-1])
