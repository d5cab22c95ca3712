"""Shards: what dividing a fragment costs, and what losing a shard does.

    make bench BENCH=shards               everything, with 100 kills
    make bench BENCH=shards ARGS=--quick  some four minutes
    make bench BENCH=shards ARGS='--quick --only scale'   one of the parts; scale is not in --quick

1. One replica with both cores, and two and four shards with a core each, are given the same buckets
   of 500,000 tuples in turn (shards_engine.py): ``throughput_by_shards`` is the median ratio.
2. A ring of two hybrid shards runs as real processes at 3,000 tuples/s over 100,000 open windows
   and is killed again and again (shards_ring.py): how long no stable results came, what was lost or
   doubled, of results and of the tuples at the entry point, how many messages there are beside data
   and pings for 1,000 tuples. A kill waits until what was killed before is at work again:
   ``kills_at_work`` says how many hit a process that was.
   ``messages`` are those of two operators with two and with four shards each, simulated
   (shards_messages.py).
3. Rings of up to 200 shards run in the simulator (shards_scale.py): how pings, records, data and
   what rescaling takes grow; not in the quick form.
4. Every kind of delivery (shards_delivery.py): the time of exactly once over that of at most once
   for bursts of small tuples and of ten times larger ones, with two shards and with four, and that
   of at least once with two; what it would cost to wait for each acknowledgement; what is lost and
   doubled while shards are killed, each time when all kinds are at work again.
5. Shards become more and fewer while they run (shards_rescale.py), in the short form one, two and
   one again, else two, three, one, four and two: for how long no stable results came,
   ``rescale_gap_ms``, and how long it took.

``bytes_per_tuple_record`` is what goes from a shard to the copy that stands by, for each tuple: the
state that it changed, twice a second, and what is not acknowledged of the results.
``bytes_over_mirroring`` sets it against sending each tuple there, as large as the entry point's log
has it, for small tuples and for larger ones with a column that no operator keeps.

``missed`` names the bars that were missed (shards_bars.py). The exit code is 1 if anything was
lost, doubled or different that must not be: how long things take depends on what else the machine
does.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.shards_bars import missed
from benchmarks.shards_bursts import Cost
from benchmarks.shards_delivery import compare_and_kill
from benchmarks.shards_engine import throughput
from benchmarks.shards_messages import count_messages
from benchmarks.shards_page import record_parts, recorded_in_full
from benchmarks.shards_reader import EXACTLY, LEAST, MOST
from benchmarks.shards_rescale import run_rescalings
from benchmarks.shards_ring import Outcome, run_ring
from benchmarks.shards_scale import grow, rescale

PARTS = ("scale", "messages", "engine", "ring", "delivery", "rescale")
# Not in the quick form.
LONG = ("scale",)
SHARED = ("lost", "doubled", "missed")


@dataclass(frozen=True)
class Lengths:
    """How much is done."""

    rounds: int
    tuples: int
    watched: int
    kills: int
    windows: int
    rings: tuple[int, ...]
    # By the number of shards: how many rounds of bursts; and how many tuples are in one.
    bursts: Mapping[int, int]
    burst: int
    numbers: tuple[int, ...]
    counted: int


FULL = Lengths(
    rounds=9,
    tuples=500_000,
    watched=10,
    kills=100,
    windows=100_000,
    rings=(2, 4, 50, 200),
    bursts={2: 9, 4: 9},
    burst=1_500_000,
    numbers=(2, 3, 1, 4, 2),
    counted=100_000,
)
QUICK = replace(
    FULL,
    watched=2,
    kills=10,
    rings=(2, 4, 20),
    bursts={2: 3, 4: 3},
    burst=800_000,
    numbers=(1, 2, 1),
)


def ring_figures(outcome: Outcome) -> dict[str, Any]:
    return {
        "takeover_gap_ms": statistics.median(outcome.takeover_gaps_ms),
        "takeover_gaps_ms": outcome.takeover_gaps_ms,
        "reinstate_gap_ms": statistics.median(outcome.reinstate_gaps_ms),
        "reinstate_gaps_ms": outcome.reinstate_gaps_ms,
        "usual_ms": outcome.usual_ms,
        "kills": outcome.kills,
        "kills_at_work": outcome.at_work,
        "tuples": outcome.tuples,
        "results": outcome.results,
        "lost": {"exactly-once": outcome.lost},
        "doubled": {"exactly-once": outcome.doubled},
        "identical": outcome.identical,
        "entry_lost": outcome.entry_lost,
        "entry_doubled": outcome.entry_doubled,
        "ring_messages": outcome.messages_per_1000,
        "bytes_per_tuple_record": outcome.record_bytes,
        "bytes_over_mirroring": {
            str(round(size)): round(record / size, 3) for size, record in outcome.mirrored
        },
        "open_windows": outcome.open_windows,
    }


def delivery_figures(directory: Path, lengths: Lengths) -> tuple[dict[str, Any], bool]:
    """What it costs and does; whether each kind has kept its promise."""
    found = compare_and_kill(directory, lengths.bursts, lengths.burst, lengths.kills)
    first = str(next(iter(found.costs)))
    figures = {
        **cost_figures(found.costs),
        "waiting_over_exactly": {first: found.waiting},
        **{
            what: {kind: getattr(one, what) for kind, one in found.killed.items()}
            for what in ("lost", "doubled", "sent")
        },
        "delivery_kills": {kind: one.kills for kind, one in found.killed.items()},
    }
    return figures, found.killed[LEAST].lost == 0 and found.killed[MOST].doubled == 0


def cost_figures(costs: dict[int, Cost]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for kind, name, rounds in (
        (EXACTLY, "exactly_over_at_most", "burst_ratios"),
        (LEAST, "least_over_at_most", "least_burst_ratios"),
    ):
        ratios = {
            str(shards): cost.over_most[kind]
            for shards, cost in costs.items()
            if kind in cost.over_most
        }
        figures |= {
            name: {shards: one.times for shards, one in ratios.items()},
            f"{name}_cpu": {shards: one.cpu for shards, one in ratios.items()},
            rounds: {shards: one.rounds for shards, one in ratios.items()},
        }
    return figures | {
        "burst_seconds": {str(shards): cost.seconds for shards, cost in costs.items()}
    }


def rescale_figures(directory: Path, lengths: Lengths) -> tuple[dict[str, Any], bool]:
    """How long it took; whether nothing was lost, and no bit differs."""
    found = run_rescalings(directory, lengths.numbers, lengths.windows)
    figures = {
        "rescale_gap_ms": max(found.gaps_ms),
        "rescale_gaps_ms": found.gaps_ms,
        "rescale_took_seconds": found.seconds,
        "rescaled": list(lengths.numbers),
        "rescale_lost": found.lost,
        "rescale_doubled": found.doubled,
        "rescale_identical": found.identical,
        "rescale_entry_lost": found.entry_lost,
        "rescale_entry_doubled": found.entry_doubled,
    }
    return figures, found.identical and not found.entry_lost and not found.entry_doubled


def engine_figures(directory: Path, lengths: Lengths) -> tuple[dict[str, Any], bool]:
    rates, ratios, equal = throughput(directory, (1, 2, 4), lengths.rounds, lengths.tuples)
    told = {"throughput_by_shards": ratios, "tuples_per_second": rates, "shards_identical": equal}
    return told, equal


def figures_of(part: str, directory: Path, lengths: Lengths) -> tuple[dict[str, Any], bool]:
    """The figures of a part, and whether it is as promised."""
    directory.mkdir()
    match part:
        case "scale":
            return {"scale": [grow(shards) | rescale(shards) for shards in lengths.rings]}, True
        case "messages":
            counted = {str(shards): count_messages(shards, lengths.counted) for shards in (2, 4)}
            told = {shards: one.pop("all") for shards, one in counted.items()}
            return {"messages": told, "messages_by_kind": counted}, True
        case "engine":
            return engine_figures(directory, lengths)
        case "ring":
            outcome = run_ring(directory, 2, lengths.watched, lengths.kills, lengths.windows)
            whole = not outcome.entry_lost and not outcome.entry_doubled
            return ring_figures(outcome), outcome.identical and whole
        case "delivery":
            return delivery_figures(directory, lengths)
        case _:
            return rescale_figures(directory, lengths)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="10 kills")
    parser.add_argument("--keep", action="store_true", help="leave the directory behind")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/results")
    parser.add_argument("--only", choices=PARTS, help="one of the parts")
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    lengths = QUICK if options.quick else FULL
    chosen = tuple(each for each in PARTS if not (options.quick and each in LONG))
    chosen = chosen if options.only is None else (options.only,)
    if options.record and options.quick and (known := recorded_in_full(chosen)):
        parser.error(
            f"the full form of {', '.join(known)} is recorded, which says more than --quick: leave "
            f"--quick out, choose another part with --only, or remove the recorded one from "
            f"docs/results/shards.json first"
        )
    directory = Path(tempfile.mkdtemp(prefix="holdfast-shards-"))
    started = time.monotonic()
    parts: dict[str, dict[str, Any]] = {}
    well = True
    for part in chosen:
        began = time.monotonic()
        parts[part], kept = figures_of(part, directory / part, lengths)
        parts[part] |= {f"{part}_seconds": round(time.monotonic() - began, 1)}
        parts[part] |= {"missed": missed(part, parts[part])}
        well &= kept
        if options.record:
            # Each at once: what a later part does not survive does not take it along.
            record_parts({part: parts[part]}, command_of(given), describe_machine())
        print(f"{time.monotonic() - started:7.1f} s  {part}", file=sys.stderr, flush=True)
    figures: dict[str, Any] = {"bench": "shards"}
    for found in parts.values():
        for key, value in found.items():
            together = key in SHARED and key in figures
            figures[key] = together_of(figures[key], value) if together else value
    figures |= {"seconds": round(time.monotonic() - started, 1), "machine": describe_machine()}
    if well and not options.keep:
        shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(figures))
    return 0 if well else 1


def command_of(given: list[str]) -> str:
    """What to type for the same figures."""
    told = " ".join(each for each in given if each != "--record")
    return f"make bench BENCH=shards ARGS='{told}'" if told else "make bench BENCH=shards"


def together_of(one: Any, other: Any) -> Any:
    """What two parts say under one name: of several kinds of delivery, or of several bars."""
    return one | other if isinstance(one, dict) else one + other


if __name__ == "__main__":
    sys.exit(main())
