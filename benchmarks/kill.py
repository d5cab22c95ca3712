"""Five hundred kills: the stable stream of a chain of three fragments must not show them.

    make bench BENCH=kill               500 kills, some 20 minutes
    make bench BENCH=kill ARGS=--quick  40 kills
    make bench BENCH=kill ARGS='--quick --protection hybrid'   with a second copy of every fragment,
                                                               and blows at both (kill_copies.py)
    make bench BENCH=kill ARGS='--quick --checkpoint continuous'   windows of every kind, whose
                                                                   states are in the output log

The example deployment runs as real processes; entry point, replicas and client are killed with
SIGKILL at random moments, restarted by the supervisor, while a producer goes on sending. Then
they are paused for up to six seconds, twice X, which makes tentative results and corrections. At
the end the client's file is compared byte by byte with an undisturbed run over the same tuples.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.kill_copies import Blows
from benchmarks.machine import describe_machine
from benchmarks.record import record
from holdfast.cluster.networks import load_network
from holdfast.deployment import load_deployment
from holdfast.testing.deployed import Killer, Load, expected_file, supervised, wait_for_lines

EXAMPLES = Path(__file__).parents[1] / "examples"
# Small bounds, so that windows are written again and again.
KNOBS = 'extent = 60\ninterval = "5 ms"\nperiod = "20 ms"'


def readings(first: int, count: int) -> pa.Table:
    """Tuples that depend on their numbers only."""
    random = np.random.default_rng(first)
    return pa.table(
        {
            "number": np.arange(first, first + count),
            "server": random.integers(0, 4, count),
            "cpu": random.random(count) - 0.05,
        }
    )


def deployment_text(example: Path, protection: str | None) -> str:
    """The example's deployment; protected, its second copies are in a process of their own."""
    # The oracle needs every tuple.
    text = (example / "deployment.toml").read_text()
    text = text.replace('recover_within = "2 seconds"', KNOBS)
    text = text.replace("[sources.load]", "[sources.load]\nkeep = true")
    if protection is not None:
        apart = f'protection = "{protection}"\ncolocate = ["worker", "spare"]'
        text = text.replace('colocate = "worker"', apart)
    return text


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="40 kills")
    parser.add_argument("--kills", type=int, default=None)
    parser.add_argument("--pauses", type=int, default=None, help="SIGSTOP for a while, as well")
    parser.add_argument("--protection", choices=["active", "passive", "hybrid"], default=None)
    parser.add_argument("--checkpoint", choices=["continuous"], default=None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="leave the directory behind")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/results")
    options = parser.parse_args(arguments)
    kills = options.kills or (40 if options.quick else 500)
    pauses = kills // 10 if options.pauses is None else options.pauses
    blows = 0 if options.protection is None else kills // 2
    continuous = options.checkpoint is not None
    example = EXAMPLES / ("continuous" if continuous else "deployment")
    output = "found" if continuous else "busy"
    replica = 0 if blows else max(1, kills // (3 if continuous else 10))
    others = kills - blows - replica
    times = {"worker": replica, "entry-load": others // 2, "recorder": others - others // 2}
    directory = Path(tempfile.mkdtemp(prefix="holdfast-kill-"))
    shutil.copy(example / "network.py", directory / "network.py")
    (directory / "deployment.toml").write_text(deployment_text(example, options.protection))
    deployment = load_deployment(directory / "deployment.toml")
    started = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - started:7.1f} s  {text}", file=sys.stderr, flush=True)

    with supervised(deployment, tell) as supervisor:
        load = Load(deployment, "load", readings)
        killer = Killer(supervisor, options.seed)
        found = deployment.data / f"{output}.jsonl"
        struck: dict[str, int] = {}
        if blows:
            copies = Blows(supervisor, ("worker", "spare"), found, options.seed, tell)
            apart = threading.Thread(target=killer.kill, args=(times, (2.0, 8.0)), daemon=True)
            apart.start()
            struck = copies.strike(blows)
            apart.join(600.0)
            times["worker and spare"] = copies.kills
        else:
            killer.kill(times, (0.05, 3.0))
            killer.pause(dict.fromkeys(times, -(-pauses // len(times))), (0.5, 2.0), (0.5, 6.0))
        sent = load.stop()
        killed_s = time.monotonic() - started
        tell(f"{sum(times.values())} kills, {sent:,} tuples sent and durable")
        network = load_network(deployment.network, "local[2]", {})
        expected = expected_file(network, deployment, output)
        wait_for_lines(supervisor, found, expected.count("\n"), 600.0)
        time.sleep(1.0)
    identical = found.read_text() == expected
    tell(f"{expected.count(chr(10)):,} results, identical: {identical}")
    if identical and not options.keep:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        tell(f"see {directory}")
    figures = {
        "bench": "-".join(filter(None, ("kill", options.protection, options.checkpoint))),
        "protection": options.protection or "none",
        "checkpoint": options.checkpoint or "whole",
        "kills": sum(times.values()),
        "killed": times,
        "pauses": 0 if blows else pauses,
        "blows": struck,
        "tuples": sent,
        "results": expected.count("\n"),
        "identical": identical,
        "kill_seconds": round(killed_s, 1),
        "seconds": round(time.monotonic() - started, 1),
        "machine": describe_machine(),
    }
    if options.record:
        options_told = " ".join(each for each in sys.argv[1:] if each != "--record")
        record(figures, f"make bench BENCH=kill ARGS='{options_told}'")
    print(json.dumps(figures))
    return 0 if identical else 1


if __name__ == "__main__":
    sys.exit(main())
