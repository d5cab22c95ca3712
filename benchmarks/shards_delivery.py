"""What each kind of delivery costs, and what it does when shards are killed.

Numbered tuples go through shards and what merges them, as real processes: a fragment for each kind
and number of shards, with a source and a client of its own. The first shards of all of them share a
process and its driver, the second ones another, and so on: what is compared runs in the same
processes, and a small machine has no more than four drivers. First bursts are handed to exactly
once and to at most once in turn, with the first number of shards to at least once as well, of small
tuples and of ten times larger ones (shards_bursts.py). Then at most once and at least once run at a
steady rate while their shards and what merges them are killed, and the numbers tell what was lost
and what came twice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.shards_bursts import BUCKET_US, Cost, cost_of, waiting_over_not
from benchmarks.shards_reader import (
    EXACTLY,
    LEAST,
    MOST,
    WAIT_SECONDS,
    Reader,
    name_of,
    now_us,
    numbered,
)
from holdfast.cluster.supervisor import Supervisor
from holdfast.deployment import Deployment, load_deployment
from holdfast.testing.deployed import Load, supervised

DRIVERS = "drivers"
RATE = 1_000
# How long what is killed next has been at work.
AT_WORK_SECONDS = (0.3, 1.0)

_ONE = """
{name} = network.source("{name}_in", "number bigint, payload string")
{name}.fragment("{name}").filter("number >= 0").output("{name}_out")
"""
_FRAGMENT = """
[sources.{name}_in]
[fragments.{name}]
shards = {shards}
delivery = "{kind}"
colocate = "{drivers}"
[clients.{name}_reader]
output = "{name}_out"
"""


@dataclass(frozen=True)
class Killed:
    """What came of the tuples of a kind while its processes were killed, each time at work.

    kills     how many of its processes were killed.
    """

    kills: int
    sent: int
    lost: int
    doubled: int


@dataclass(frozen=True)
class Delivered:
    """What each kind costs, by the number of shards; what it does.

    waiting  the time of exactly once over itself if each batch waits for the one before, with the
             first number of shards.
    killed   by kind.
    """

    costs: dict[int, Cost]
    waiting: float
    killed: dict[str, Killed]


def compare_and_kill(
    directory: Path, rounds: Mapping[int, int], tuples: int, kills: int
) -> Delivered:
    """Bursts of so many tuples for all kinds, then kills, so many of each kind.

    ``rounds`` says how many there are with each number of shards; the first has its shards killed.
    """
    first = next(iter(rounds))
    wanted = {
        shards: (EXACTLY, LEAST, MOST) if shards == first else (EXACTLY, MOST) for shards in rounds
    }
    fragments = [(kind, shards) for shards, kinds in wanted.items() for kind in kinds]
    deployment = _deployment(directory, fragments)
    with supervised(deployment) as supervisor, _reading(deployment, fragments) as readers:
        by_name = {reader.name: reader for reader in readers}
        costs = {
            shards: cost_of(
                deployment,
                [by_name[name_of(kind, shards)] for kind in kinds],
                rounds[shards],
                tuples,
            )
            for shards, kinds in wanted.items()
        }
        waiting = waiting_over_not(deployment, by_name[name_of(EXACTLY, first)])
        losing = [by_name[name_of(kind, first)] for kind in (MOST, LEAST)]
        killed = _kill(deployment, supervisor, losing, first, kills)
    return Delivered(costs, waiting, killed)


def _kill(
    deployment: Deployment,
    supervisor: Supervisor,
    readers: list[Reader],
    shards: int,
    kills: int,
) -> dict[str, Killed]:
    """Lost and doubled tuples of each kind, while its shards and what merges them are killed.

    Each turn is one kill for every kind: they share the processes of their shards, and of those
    that merge each has its own, which are killed together.
    """
    begun = {reader.kind: reader.next_number for reader in readers}

    def rows_from(begin: int) -> Callable[[int, int], pa.Table]:
        return lambda first, count: numbered(16, begin + first, count)

    loads = {
        reader.kind: Load(deployment, reader.source, rows_from(begun[reader.kind]), RATE)
        for reader in readers
    }
    moments = random.Random(0)
    for turn in range(kills):
        # What is not at work yet has nothing to lose and nothing to double: another process is
        # killed only when tuples that were made after the last kill have come out again. Of at
        # least once, too, or it would be at work less and less.
        since = now_us()
        for reader in readers:
            reader.get_newer(since)
        time.sleep(moments.uniform(*AT_WORK_SECONDS))
        for victim in _victims([one.name for one in readers], shards, turn):
            kill_one(supervisor, victim)
    sent = {kind: load.stop() for kind, load in loads.items()}
    found = {}
    for reader in readers:
        reader.reach(now_us())
        numbers = reader.numbers()
        numbers = numbers[numbers >= begun[reader.kind]]
        unique, all_sent = len(np.unique(numbers)), sent[reader.kind]
        found[reader.kind] = Killed(
            kills, all_sent, lost=all_sent - unique, doubled=len(numbers) - unique
        )
    return found


def kill_one(supervisor: Supervisor, name: str) -> None:
    """Kill a process; one that is on its way up, as it died by itself, is waited for."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not supervisor.kill(name):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} does not come back")
        time.sleep(0.02)


def _victims(names: list[str], shards: int, number: int) -> list[str]:
    """The process of each shard in turn, and now and then what merges them."""
    turn = number % (shards + 1)
    return [f"{name}-1" for name in names] if turn == shards else [f"{DRIVERS}.{turn + 1}"]


def _deployment(directory: Path, fragments: list[tuple[str, int]]) -> Deployment:
    network = "from holdfast import Network\n\n"
    network += f'network = Network("delivery", bucket="{BUCKET_US // 1000} ms")\n'
    text = 'network = "network.py"\n[timing]\ndelay = "3 seconds"\nheartbeat = "100 ms"\n'
    for kind, shards in fragments:
        name = name_of(kind, shards)
        network += _ONE.format(name=name)
        text += _FRAGMENT.format(name=name, kind=kind, shards=shards, drivers=DRIVERS)
    (directory / "network.py").write_text(network)
    (directory / "deployment.toml").write_text(text)
    return load_deployment(directory / "deployment.toml")


@contextmanager
def _reading(deployment: Deployment, fragments: list[tuple[str, int]]) -> Iterator[list[Reader]]:
    """A reader of each; closed whatever happens, or the process would not end."""
    readers = [Reader(deployment, kind, shards) for kind, shards in fragments]
    try:
        for reader in readers:
            # At most once begins with what comes from now on.
            reader.reach(now_us())
        yield readers
    finally:
        for reader in readers:
            reader.close()
