"""The part of the benchmark ``time`` about sources whose tuples bring their own time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.dpc_page import Tell
from benchmarks.dpc_setting import SOURCES, Setting
from benchmarks.dpc_world import Hosts, World

OWN_TIME = Setting(
    rate=3_000, adapts=True, own_time=True, lateness_ms=300, idle_after_ms=800, bucket_ms=200
)
# For the random order: as it comes, however fast; nobody is to stand in for anybody.
AT_ONCE = Setting(
    rate=3_000, adapts=True, own_time=True, lateness_ms=1_000, delay_s=30.0, quiet=True, replicas=1
)
LATENESS_US = 1_000_000
# How many rows are sent at once.
BATCH = 60_000


def longest_gap_s(world: World, since: float, until: float) -> float:
    """The longest time without a result at the client."""
    seen = world.arrivals.seen(int(since * 1e6))
    came = np.unique(seen.came[seen.came <= until * 1e6]) / 1e6
    moments = np.concatenate([[since], came, [until]])
    return round(float(np.diff(moments).max()), 3)


def future_row(hosts: Hosts, tell: Tell) -> dict[str, Any]:
    """One row stamped 2099: how long nothing comes."""
    with World(hosts, OWN_TIME) as world:
        world.settle(3.0)
        since = time.time()
        world.load.send_stamped(0, 2099)
        time.sleep(8.0)
        found = longest_gap_s(world, since, time.time())
    tell(f"a row of 2099: the longest gap is {found} s")
    return {"future_row_gap_s": found}


def idle_source(hosts: Hosts, tell: Tell) -> dict[str, Any]:
    """One source of three says nothing for a while."""
    with World(hosts, OWN_TIME) as world:
        world.settle(3.0)
        since = time.time()
        world.load.quiet.add(len(SOURCES) - 1)
        time.sleep(8.0)
        until = time.time()
        world.load.quiet.clear()
        gap = longest_gap_s(world, since, until)
        seen = world.arrivals.seen(int(since * 1e6))
        tentative = int((~seen.stable & (seen.came <= until * 1e6)).sum())
        world.settle(1.0)
        world.finish()
    tell(f"a quiet source: the longest gap is {gap} s, {tentative} tentative tuples")
    return {"idle_gap_s": gap, "idle_tentative": tentative}


def random_order(hosts: Hosts, rows: int, tell: Tell) -> dict[str, Any]:
    """So many rows in random order within the lateness, and the same sorted."""
    streams = [stable_stream(hosts, rows, shuffled) for shuffled in (False, True)]
    ordered, shuffled = streams
    lost = rows - len(np.intersect1d(np.unique(shuffled), np.arange(rows)))
    doubled = len(shuffled) - len(np.unique(shuffled))
    same = len(ordered) == len(shuffled) and bool((ordered == shuffled).all())
    tell(f"{rows} rows in random order: {lost} lost, {doubled} doubled, the same stream: {same}")
    return {"out_of_order_lost": lost + doubled + (0 if same else 1), "out_of_order_rows": rows}


def stable_stream(hosts: Hosts, rows: int, shuffled: bool) -> npt.NDArray[np.int64]:
    """The numbers of the stable stream."""
    start = (time.time_ns() // 1000 - 40_000_000) // 1_000_000 * 1_000_000
    numbers = np.arange(rows)
    at = numbers * (30_000_000 // rows)
    if shuffled:
        random = np.random.default_rng(2)
        # A row comes at most the lateness after one that is newer.
        order = np.argsort(at + random.integers(0, LATENESS_US, rows), kind="stable")
        numbers, at = numbers[order], at[order]
    with World(hosts, AT_ONCE) as world:
        for first in range(0, rows, BATCH):
            part = slice(first, first + BATCH)
            for index, producer in enumerate(world.load._producers):
                mine = numbers[part] % len(SOURCES) == index
                stamps = pa.array(start + at[part][mine]).cast(pa.timestamp("us", "UTC"))
                table = {
                    "number": numbers[part][mine],
                    "made": start + at[part][mine],
                    "at": stamps,
                }
                producer.send(pa.table(table))
        for producer in world.load._producers:
            producer.promise(start + 60_000_000)
            producer.flush(300.0)
        world.wait(lambda: world.client.next_id >= rows, 300.0, f"{rows} stable tuples")
        world.arrivals.stop()
        seen = world.arrivals.seen()
    return seen.number[seen.stable]
