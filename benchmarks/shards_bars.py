"""What the figures of benchmark shards are held against, and which of them miss it.

A build fails over what is lost, doubled or different, never over what takes long: that depends on
what else the machine does. So bars that are missed are told by name, in the JSON line and on the
page, and the exit code leaves them alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.shards_reader import LEAST, MOST

# X of the deployments that are measured, and what is aimed at.
X_MS, AIM_MS = 3_000, 500
THROUGHPUT_OF_TWO = 0.95
EXACTLY_OVER_MOST = 1.1
OVER_MIRRORING = 1.0
GAPS = f"at most X, {X_MS:,}"
# What each kind promises while its processes are killed.
PROMISED = {LEAST: "lost", MOST: "doubled"}


def missed(part: str, told: dict[str, Any]) -> list[str]:
    """The bars that a part's figures miss: the figure's name, what was found and what is wanted."""
    match part:
        case "engine":
            found = _engine(told)
        case "ring":
            found = _ring(told)
        case "delivery":
            found = _delivery(told)
        case "rescale":
            found = _rescale(told)
        case _:
            found = iter(())
    return list(found)


def _engine(told: dict[str, Any]) -> Iterator[str]:
    ratio = told["throughput_by_shards"]["2"]
    if ratio < THROUGHPUT_OF_TWO:
        yield f"throughput_by_shards of 2: {ratio:g}, wanted at least {THROUGHPUT_OF_TWO:g}"
    yield from _same("shards_identical", told)


def _ring(told: dict[str, Any]) -> Iterator[str]:
    for name in ("takeover_gaps_ms", "reinstate_gaps_ms"):
        yield from _gaps(name, told)
    for what in ("lost", "doubled"):
        for kind, number in told[what].items():
            yield from _none(f"{what} {kind}", number)
    yield from _same("identical", told)
    yield from _entry("", told)
    for size, ratio in told["bytes_over_mirroring"].items():
        if ratio >= OVER_MIRRORING:
            yield f"bytes_over_mirroring of {size} bytes: {ratio:g}, wanted below 1"


def _delivery(told: dict[str, Any]) -> Iterator[str]:
    for shards, ratios in told["exactly_over_at_most"].items():
        for size, ratio in ratios.items():
            if ratio > EXACTLY_OVER_MOST:
                what = f"exactly_over_at_most of {shards} shards, {size} tuples"
                yield f"{what}: {ratio:g}, wanted at most {EXACTLY_OVER_MOST:g}"
    for kind, what in PROMISED.items():
        yield from _none(f"{what} {kind}", told[what][kind])


def _rescale(told: dict[str, Any]) -> Iterator[str]:
    yield from _gaps("rescale_gaps_ms", told)
    for name in ("rescale_lost", "rescale_doubled"):
        yield from _none(name, told[name])
    yield from _same("rescale_identical", told)
    yield from _entry("rescale_", told)


def _gaps(name: str, told: dict[str, Any]) -> Iterator[str]:
    """X holds for each of them, whatever their median is."""
    longest = max(told[name])
    if longest > X_MS:
        yield f"{name}: {longest:g}, wanted {GAPS}"


def _none(name: str, number: int) -> Iterator[str]:
    if number:
        yield f"{name}: {number:,}, wanted 0"


def _entry(prefix: str, told: dict[str, Any]) -> Iterator[str]:
    # Older records did not look there.
    for name in (f"{prefix}entry_lost", f"{prefix}entry_doubled"):
        yield from _none(name, told.get(name, 0))


def _same(name: str, told: dict[str, Any]) -> Iterator[str]:
    # Older records lack some of them.
    if not told.get(name, True):
        yield f"{name}: the results are not those of one engine"
