"""What each kind of delivery costs, and what it does when shards are killed.

Numbered tuples go through shards and what merges them, as real processes: a fragment for each kind
and number of shards, with a source and a client of its own. The first shards of all of them share a
process and its driver, the second ones another, and so on: what is compared runs in the same
processes, and a small machine has no more than four drivers. First bursts are handed to exactly
once and to at most once in turn, of small tuples and of ten times larger ones, and the time until
the client has all of them is compared, within each round: the machine is not the same in another
one. A burst is complete when its last bucket is, so it is as long as many buckets, and all begin
with one. Beside the time is what the processors had to do for it, in all processes. What the paper
rejects without measuring it is measured, too: the time of a burst each of whose batches waits until
the one before has come out. Then the others run at a steady rate while their shards are killed, and
the numbers tell what was lost and what came twice.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.machine import descendants_cpu_s
from holdfast.client import Client
from holdfast.cluster.status import node_status
from holdfast.cluster.supervisor import Supervisor
from holdfast.deployment import Deployment, load_deployment
from holdfast.producer import Producer
from holdfast.stream_events import Boundary, Tuples
from holdfast.testing.deployed import Killer, Load, supervised

EXACTLY, LEAST, MOST = "exactly-once", "at-least-once", "at-most-once"
NAMES = {EXACTLY: "exactly", LEAST: "least", MOST: "most"}
DRIVERS = "drivers"
SIZES = {"small": 16, "ten times": 160}
# Of small tuples there are so many times as many in a burst, for it to take as long.
MORE = {"small": 2, "ten times": 1}
RATE = 1_000
BATCH = 10_000
BUCKET_US = 200_000
# So many batches wait for one another, and so many times.
WAITING, WAITING_ROUNDS = 4, 3
WAIT_SECONDS = 60.0

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


def numbered(size: int, first: int, count: int) -> pa.Table:
    payload = pa.array(["x" * size]).take(pa.array(np.zeros(count, dtype=np.int64)))
    return pa.table({"number": np.arange(first, first + count), "payload": payload})


class Reader:
    """A client of one kind that notes which numbers came."""

    def __init__(self, deployment: Deployment, kind: str, shards: int) -> None:
        self.kind = kind
        self.name = name_of(kind, shards)
        self._deployment = deployment
        self.source = f"{self.name}_in"
        self.next_number = 0
        self.until = 0
        self._came: list[np.ndarray[Any, Any]] = []
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        output, reader = f"{self.name}_out", f"{self.name}_reader"
        self._client = Client.of(deployment.path, output, name=reader)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while not self._stopping.is_set():
                event = self._client.read(0.05)
                if isinstance(event, Tuples) and event.stable:
                    self._came.append(event.table["number"].to_numpy())
                elif isinstance(event, Boundary):
                    self.until = event.stime
        except BaseException as error:
            self._failure = error

    def numbers(self) -> np.ndarray[Any, Any]:
        return np.concatenate([np.empty(0, dtype=np.int64), *self._came])

    def reach(self, stime: int) -> None:
        """Wait until everything is stable up to a time."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self.until <= stime:
            if self._failure is not None:
                raise self._failure
            if time.monotonic() > deadline:
                behind = (stime - self.until) / 1e6
                raise TimeoutError(
                    f"{self.name}: the client is {behind:.1f} s behind after {WAIT_SECONDS:g} s; "
                    f"the processes say: {self._told()}"
                )
            time.sleep(0.005)

    def _told(self) -> str:
        """How everybody on the way is."""
        names = (self.name, f"entry-{self.name}")
        nodes = [one for one in self._deployment.endpoints if one.startswith(names)]
        return json.dumps(node_status(self._deployment, nodes), indent=1)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(5.0)
        self._client.close()


@dataclass(frozen=True)
class Took:
    """What a burst took: time, and that of the processors in all processes of the deployment."""

    seconds: float
    cpu_s: float


@dataclass(frozen=True)
class Cost:
    """Time of exactly once over that of at most once, by the size of tuples; seconds of both.

    ratios   the median of those of each round; ``rounds`` has them all.
    cpu      the same of the processors' time.
    waiting  the time of exactly once over itself if each batch waits for the one before; of the
             first number of shards.
    """

    ratios: dict[str, float]
    rounds: dict[str, list[float]]
    cpu: dict[str, float]
    seconds: dict[str, dict[str, float]]
    waiting: float | None


def compare_and_kill(
    directory: Path, rounds: Mapping[int, int], tuples: int, kills: int
) -> tuple[dict[int, Cost], dict[str, Any]]:
    """What it costs, by the number of shards, and what is lost and doubled of the others.

    ``rounds`` says how many there are with each number of shards; the first has its shards killed.
    """
    killed = next(iter(rounds))
    wanted = [(kind, shards) for shards in rounds for kind in (EXACTLY, MOST)]
    deployment = _deployment(directory, [*wanted, (LEAST, killed)])
    with (
        supervised(deployment) as supervisor,
        _reading(deployment, [*wanted, (LEAST, killed)]) as readers,
    ):
        by_name = {reader.name: reader for reader in readers}
        costs = {}
        for shards, number in rounds.items():
            pair = [by_name[name_of(kind, shards)] for kind in (EXACTLY, MOST)]
            costs[shards] = _cost(deployment, pair, number, tuples)
            if shards == killed:
                waiting = _waiting(deployment, pair[0])
                costs[shards] = replace(costs[shards], waiting=waiting)
        losing = [by_name[name_of(kind, killed)] for kind in (MOST, LEAST)]
        found = _kill(deployment, supervisor, losing, killed, kills)
    return costs, found


def _cost(deployment: Deployment, readers: list[Reader], rounds: int, tuples: int) -> Cost:
    kinds = [reader.kind for reader in readers]
    taken: dict[str, dict[str, list[Took]]] = {size: {one: [] for one in kinds} for size in SIZES}
    # The first bursts are for the engine to get warm.
    for number in range(-1, rounds):
        for size, width in SIZES.items():
            for reader in readers if number % 2 else reversed(readers):
                took = _burst(deployment, reader, width, tuples * MORE[size])
                if number >= 0:
                    taken[size][reader.kind].append(took)
    ratios = {size: _ratios(each, lambda one: one.seconds) for size, each in taken.items()}
    cpu = {size: _ratios(each, lambda one: one.cpu_s) for size, each in taken.items()}
    seconds = {
        size: {
            kind: round(statistics.median(one.seconds for one in found), 3)
            for kind, found in each.items()
        }
        for size, each in taken.items()
    }
    return Cost(_medians(ratios), ratios, _medians(cpu), seconds, None)


def _ratios(taken: dict[str, list[Took]], what: Callable[[Took], float]) -> list[float]:
    """Exactly once over at most once, round by round."""
    pairs = zip(taken[EXACTLY], taken[MOST], strict=True)
    return [round(what(one) / what(other), 3) for one, other in pairs]


def _medians(ratios: dict[str, list[float]]) -> dict[str, float]:
    return {size: round(statistics.median(each), 3) for size, each in ratios.items()}


def _waiting(deployment: Deployment, reader: Reader) -> float:
    """How many times as long a burst takes each of whose batches waits for the one before."""
    width, tuples = SIZES["small"], WAITING * BATCH
    ratios = []
    for _ in range(WAITING_ROUNDS):
        waiting, at_once = (
            _burst(deployment, reader, width, tuples, waits=waits).seconds
            for waits in (True, False)
        )
        ratios.append(waiting / at_once)
    return round(statistics.median(ratios), 3)


def _burst(
    deployment: Deployment, reader: Reader, width: int, tuples: int, *, waits: bool = False
) -> Took:
    """How long a burst takes to come out; with ``waits``, one batch after the other."""
    rows = numbered(width, reader.next_number, tuples)
    with Producer.of(deployment.path, reader.source, name="burst") as producer:
        time.sleep((BUCKET_US - _now_us() % BUCKET_US) / 1e6)
        began, used = time.monotonic(), descendants_cpu_s()
        for first in range(0, tuples, BATCH):
            producer.send(rows.slice(first, BATCH))
            if waits:
                reader.reach(_now_us())
    reader.reach(_now_us())
    took = Took(time.monotonic() - began, descendants_cpu_s() - used)
    reader.next_number += tuples
    return took


def _kill(
    deployment: Deployment,
    supervisor: Supervisor,
    readers: list[Reader],
    shards: int,
    kills: int,
) -> dict[str, Any]:
    """Lost and doubled tuples of each kind, while its shards and what merges them are killed."""
    begun = {reader.kind: reader.next_number for reader in readers}

    def rows_from(begin: int) -> Callable[[int, int], pa.Table]:
        return lambda first, count: numbered(16, begin + first, count)

    loads = {
        reader.kind: Load(deployment, reader.source, rows_from(begun[reader.kind]), RATE)
        for reader in readers
    }
    turn = killed = 0
    while killed < kills:
        victims = _victims([one.name for one in readers], shards, turn)
        Killer(supervisor, seed=turn).kill(dict.fromkeys(victims, 1), (0.1, 0.5))
        turn, killed = turn + 1, killed + len(victims)
    sent = {kind: load.stop() for kind, load in loads.items()}
    found = {}
    for reader in readers:
        reader.reach(_now_us())
        numbers = reader.numbers()
        numbers = numbers[numbers >= begun[reader.kind]]
        unique = len(np.unique(numbers))
        found[reader.kind] = {
            "sent": sent[reader.kind],
            "lost": sent[reader.kind] - unique,
            "doubled": len(numbers) - unique,
        }
    return found


def _victims(names: list[str], shards: int, number: int) -> list[str]:
    """The process of each shard in turn, and now and then what merges them."""
    turn = number % (shards + 1)
    return [f"{name}-1" for name in names] if turn == shards else [f"{DRIVERS}.{turn + 1}"]


def name_of(kind: str, shards: int) -> str:
    return f"{NAMES[kind]}{shards}"


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
            reader.reach(_now_us())
        yield readers
    finally:
        for reader in readers:
            reader.close()


def _now_us() -> int:
    return int(time.time() * 1e6)
