"""Every fault on a running deployment, for every protection: nothing silent, lost or doubled.

    make bench BENCH=faults               24 kinds of faults, some 40 minutes
    make bench BENCH=faults ARGS=--quick  five kinds in five minutes
    make bench BENCH=faults ARGS='--kinds kill-jvm,stop-jvm'

A deployment of real processes with a load (faults_deployment.py) is struck by one fault after the
other (faults_kinds.py), while somebody watches (faults_watch.py). After each, everybody must get
well by himself. At the end what the clients hold is compared with an undisturbed run over the
same tuples, line by line. A pair is a kind of fault and a protection that it hit.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.faults_deployment import (
    PROTECTIONS,
    REPLICAS,
    X_SECONDS,
    Deployed,
    mount_small,
    unmount,
)
from benchmarks.faults_kinds import AT_ALL, AT_REPLICAS, QUICK, Messages, strike
from benchmarks.faults_watch import Watch
from benchmarks.machine import describe_machine
from holdfast.cluster.networks import load_network
from holdfast.testing.deployed import Load, expected_files
from holdfast.testing.undisturbed import logged_tuples

RECOVER_SECONDS = 300.0
TUPLES_PER_SECOND = 500
Tell = Callable[[str], None]


@dataclass
class Told:
    """What came of the faults."""

    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    recovery_s: dict[str, dict[str, float]] = field(default_factory=dict)
    gap_s: dict[str, dict[str, float]] = field(default_factory=dict)
    unrecovered: list[str] = field(default_factory=list)
    exits: int = 0
    fuzzed: int = 0


def rows(first: int, count: int) -> pa.Table:
    """Tuples that depend on their numbers only."""
    random = np.random.default_rng(first)
    numbers = np.arange(first, first + count)
    return pa.table(
        {"number": numbers, "k": random.integers(0, 3, count), "v": random.random(count)}
    )


def wait_well(watch: Watch, over: float, over_us: int) -> dict[str, float]:
    """Seconds until everything sent before a fault was over has its stable result."""
    found: dict[str, float] = {}
    while len(found) < len(PROTECTIONS) and time.monotonic() - over < RECOVER_SECONDS:
        for name, reader in watch.readers.items():
            if name not in found and reader.stable_until > over_us:
                found[name] = time.monotonic() - over
        time.sleep(0.02)
    return found


def make_faults(
    deployed: Deployed, watch: Watch, kinds: list[str], messages: Messages, tell: Tell
) -> Told:
    told = Told()
    for kind in kinds:
        fault = messages if kind == "messages" else {**AT_REPLICAS, **AT_ALL}[kind]
        for target in REPLICAS if kind in AT_REPLICAS else ("all",):
            watch.begin()
            pids = deployed.pids()
            hit = strike(deployed, kind, fault, target)
            over, over_us = time.monotonic(), time.time_ns() // 1000
            recovered = wait_well(watch, over, over_us)
            deployed.wait_up()
            if kind == "messages":
                told.fuzzed += messages.sent
                told.exits += len(set(pids.items()) - set(deployed.pids().items()))
            for name in PROTECTIONS:
                if name not in recovered:
                    story = f"{kind} at {target}: {name} did not recover: {watch.said()[name]}"
                    told.unrecovered.append(story)
                    tell(story)
                elif name in hit.protections:
                    told.pairs[kind, name] += 1
                    for kept, value in (
                        (told.recovery_s, recovered[name]),
                        (told.gap_s, watch.gap_s[name]),
                    ):
                        by_name = kept.setdefault(kind, {})
                        by_name[name] = round(max(value, by_name.get(name, 0.0)), 1)
            tell(
                f"{kind} at {target}: hit {sorted(hit.protections)}, recovered in "
                f"{ {name: round(value, 1) for name, value in recovered.items()} }"
            )
    return told


def compare(deployed: Deployed, sent: int, tell: Tell) -> dict[str, int]:
    """What the clients hold against an undisturbed run; the log against what was sent."""
    deployment = deployed.deployment
    log = deployment.data / "processes" / "entry-load" / "streams" / "load"
    logged = logged_tuples(log)
    # What odd messages brought has no key.
    numbers = Counter(logged.filter(pa.compute.is_valid(logged["k"]))["number"].to_pylist())
    found = {
        "lost": sum(numbers[each] == 0 for each in range(sent)),
        "doubled": sum(count - 1 for count in numbers.values()),
        "differing": 0,
        "results": 0,
    }
    network = load_network(deployment.network, "local[2]", {})
    for name, text in expected_files(network, deployment, PROTECTIONS).items():
        expected = text.splitlines()
        path = deployment.data / f"{name}.jsonl"
        _wait_for_lines(path, len(expected))
        held = path.read_text().splitlines()
        by_id = {json.loads(line)["seq"]: line for line in held}
        found["results"] += len(expected)
        found["doubled"] += len(held) - len(by_id)
        found["lost"] += sum(number not in by_id for number in range(len(expected)))
        found["differing"] += sum(
            by_id.get(number, line) != line for number, line in enumerate(expected)
        )
        found["differing"] += sum(number >= len(expected) for number in by_id)
        tell(f"{name}: {len(held):,} of {len(expected):,} results, identical {held == expected}")
    return found


def _wait_for_lines(path: Path, count: int) -> None:
    deadline = time.monotonic() + RECOVER_SECONDS
    while path.read_bytes().count(b"\n") < count and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(1.0)  # for what should not come


def small_directory() -> Path:
    """A directory whose ``data`` is a small tmpfs; in a namespace of its own if need be."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-faults-"))
    if mount_small(directory / "data"):
        return directory
    shutil.rmtree(directory)
    if "HOLDFAST_FAULTS_APART" not in os.environ and shutil.which("unshare"):
        os.environ["HOLDFAST_FAULTS_APART"] = "yes"
        command = ["unshare", "-rm", sys.executable, "-m", "benchmarks.faults", *sys.argv[1:]]
        os.execvp("unshare", command)
    raise SystemExit(
        "faults needs a small tmpfs that it can fill up, and this user may neither mount one nor "
        "have namespaces of its own; run it as root, or where unshare -rm works"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="five kinds")
    parser.add_argument("--kinds", help="these kinds only, separated by commas")
    parser.add_argument("--messages", type=int, help="so many odd messages")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="leave the directory behind")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/results")
    options = parser.parse_args(arguments)
    every = [*AT_REPLICAS, *AT_ALL, "messages"]
    kinds = list(QUICK) if options.quick else every
    if options.kinds:
        kinds = options.kinds.split(",")
        unknown = sorted(set(kinds) - set(every))
        if unknown:
            raise SystemExit(f"there is no kind {unknown[0]!r}; there are {', '.join(every)}")
    directory = small_directory()
    started = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - started:7.1f} s  {text}", file=sys.stderr, flush=True)

    count = options.messages or (10_000 if options.quick else 100_000)
    messages = Messages(count, options.seed)
    figures = run(directory, kinds, messages, tell)
    figures["seconds"] = round(time.monotonic() - started, 1)
    bad = [figures[name] for name in ("silent", "lost", "doubled", "differing", "exits")]
    passed = not any(bad) and not figures["unrecovered"]
    if passed and not options.keep:
        unmount(directory / "data")
        shutil.rmtree(directory, ignore_errors=True)
    else:
        tell(f"see {directory}")
    if options.record:
        from benchmarks.faults_page import record_page

        record_page(figures, " ".join(each for each in sys.argv[1:] if each != "--record"))
    print(json.dumps(figures))
    return 0 if passed else 1


def run(directory: Path, kinds: list[str], messages: Messages, tell: Tell) -> dict[str, Any]:
    deployed = Deployed(directory, tell)
    try:
        deployed.up()
        deployed.wait_up()
        load = Load(deployed.deployment, "load", rows, TUPLES_PER_SECOND)
        watch = Watch(deployed, tell)
        try:
            wait_well(watch, time.monotonic(), time.time_ns() // 1000)
            tell("everything is up and gives results")
            told = make_faults(deployed, watch, kinds, messages, tell)
            # Who is sent nothing has nothing to say.
            watch.end()
            sent = load.stop()
            tell(f"{sum(told.pairs.values())} strikes, {sent:,} tuples sent and durable")
            compared = compare(deployed, sent, tell)
        finally:
            watch.close()
    finally:
        deployed.down()
    for story in watch.broken:
        tell(f"BROKEN {story}")
    recoveries = [value for each in told.recovery_s.values() for value in each.values()]
    return {
        "bench": "faults",
        "faults": len(told.pairs),
        "kinds": len({kind for kind, _ in told.pairs}),
        "by_protection": dict(Counter(name for _, name in told.pairs)),
        "silent": len(watch.silent),
        "lost": compared["lost"] + len(watch.broken),
        "doubled": compared["doubled"],
        "differing": compared["differing"],
        "recovery_s_max": max(recoveries, default=0.0),
        "fuzzed_messages": told.fuzzed,
        "timed_out_messages": messages.timed_out,
        "exits": told.exits,
        "unrecovered": told.unrecovered,
        "x_s": X_SECONDS,
        "tuples": sent,
        "results": compared["results"],
        "recovery_s": told.recovery_s,
        "gap_s": told.gap_s,
        "machine": describe_machine(),
    }


if __name__ == "__main__":
    sys.exit(main())
