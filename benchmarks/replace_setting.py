"""What benchmark replace runs: networks, deployments, tuples, and the right answer.

Sales of items, in windows of four sales: what was paid for the last four of an item, and the number
of the last one. An item whose last window is full has none open, so three quarters of the items
have one at any moment; as many sales as that takes are sent before anything is measured. Every
tuple follows from its number, so the right answer needs no second run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.deployment import Deployment, load_deployment

X_SECONDS = 4.0
TUPLES_PER_SECOND = 3_000
BUCKET_SECONDS = 1.0
SALES = 4
WINDOWS = 100_000
PROTECTIONS = ("active", "passive", "hybrid", "continuous")
PROCESSES = ("first", "second")
# The same four in a process of their own: nothing is lost of them, and they lend nothing.
BYSTANDER = "bystander"
BYSTANDERS = {name: f"{BYSTANDER}_{name}" for name in PROTECTIONS}

Numbers = npt.NDArray[np.int64]

PER_PROTECTION = f"""
from pyspark.sql import functions as F
from holdfast import Network, count_window

network = Network("replace", bucket="{BUCKET_SECONDS:g} s", partitions=1)
sales = network.source("sales", "number bigint, item bigint, price bigint")
for name in {(*PROTECTIONS, *BYSTANDERS.values())!r}:
    paid = sales.fragment(name).groupBy(count_window({SALES}), "item")
    paid.agg(F.sum("price").alias("paid"), F.max("number").alias("newest")).output(name)
"""
OF_TWO_SOURCES = f"""
from pyspark.sql import functions as F
from holdfast import Network, count_window

network = Network("failing", bucket="{BUCKET_SECONDS:g} s", partitions=1)
columns = "number bigint, item bigint, price bigint"
sources = [network.source(name, columns) for name in ("sales", "more")]


def paid(fragment, output):
    sales, more = (one.fragment(fragment) for one in sources)
    windows = sales.union(more).groupBy(count_window({SALES}), "item")
    windows.agg(F.sum("price").alias("paid"), F.max("number").alias("newest")).output(output)


paid("main", "paid")
"""
# The same query once more, in a process from which nothing is cut off.
CONTROL = "control"
WITH_CONTROL = f'{OF_TWO_SOURCES}paid("{CONTROL}", "{CONTROL}")\n'
HEAD = f"""
name = "{{name}}"
network = "network.py"
chaos = true
[timing]
delay = "{X_SECONDS:g} seconds"
[spark]
master = "local[1]"
"""
FRAGMENT = """
[fragments.{name}]
protection = "{protection}"
colocate = ["first", "second"]
{more}
[clients.watch-{name}]
output = "{name}"
"""
ALONE = f"""
[fragments.{{name}}]
colocate = ["{BYSTANDER}"]
{{more}}
[clients.watch-{{name}}]
output = "{{name}}"
"""
CONTINUOUS = 'checkpoint = "continuous"\n'
# Two cores run all of it: who is silent for a second is gone, and not before.
STANDBY = """
[fragments.{name}.standby]
heartbeat = "250 ms"
misses = 4
"""


def protected(directory: Path) -> Deployment:
    """A fragment for each protection; first copies share a process, second ones another. And the
    same queries without any, in a process that has nothing to do with what happens to them."""
    text = HEAD.format(name="replace") + "[sources.sales]\n"
    for name in PROTECTIONS:
        continuous = name == "continuous"
        more = CONTINUOUS if continuous else ""
        text += ALONE.format(name=BYSTANDERS[name], more=more)
        if name != "active":
            more += STANDBY.format(name=name)
        protection = "passive" if continuous else name
        text += FRAGMENT.format(name=name, protection=protection, more=more)
    return _written(directory, PER_PROTECTION, text)


def of_two_sources(directory: Path) -> Deployment:
    """One replica that reads two sources, of which one can be cut off, and one like it."""
    text = HEAD.format(name="failing") + (
        f"[sources.sales]\n[sources.more]\n[fragments.main]\n[fragments.{CONTROL}]\n"
        f'[clients.watch]\noutput = "paid"\n'
    )
    return _written(directory, WITH_CONTROL, text)


def bounded(directory: Path, bound_bytes: int, then: str) -> Deployment:
    """Two replicas, and a bound on what is kept for one of them that is away."""
    text = HEAD.format(name="bounded") + (
        f"[sources.sales]\n[sources.more]\n[fragments.main]\nreplicas = 2\n"
        f'[clients.watch]\noutput = "paid"\n'
        f'[bounds]\nbytes = {bound_bytes}\nthen = "{then}"\naway = "{X_SECONDS:g} seconds"\n'
    )
    return _written(directory, OF_TWO_SOURCES, text)


def _written(directory: Path, network: str, deployment: str) -> Deployment:
    directory.mkdir(parents=True)
    (directory / "network.py").write_text(network)
    (directory / "deployment.toml").write_text(deployment)
    return load_deployment(directory / "deployment.toml")


class Sales:
    """The sales of so many items that about ``windows`` windows are open."""

    def __init__(self, windows: int = WINDOWS) -> None:
        self.items = windows * SALES // (SALES - 1) * 102 // 100
        places = np.arange(self.items) % SALES
        # The first sales of items, then the second ones of those that have so many, and so on.
        self._opening = np.concatenate([np.flatnonzero(places >= n) for n in range(1, SALES)])
        self.opening = len(self._opening)

    def rows(self, first: int, count: int) -> pa.Table:
        """The sales from a number on."""
        numbers = np.arange(first, first + count)
        mixed = _mixed(numbers)
        items = (mixed % np.uint64(self.items)).astype(np.int64)
        opening = numbers < self.opening
        items[opening] = self._opening[numbers[opening]]
        prices = (mixed >> np.uint64(32)).astype(np.int64) % 1_000
        return pa.table({"number": numbers, "item": items, "price": prices})

    def later(self, first: int, count: int) -> pa.Table:
        """The same, of those that follow once the windows are open."""
        return self.rows(self.opening + first, count)

    def open_after(self, sent: int) -> int:
        """How many windows are open after so many sales."""
        sold = np.bincount(self.rows(0, sent)["item"].to_numpy())
        return int(np.count_nonzero(sold % SALES))

    def right_answer(self, sent: int) -> pa.Table:
        """Every window that is full after so many sales: its last sale and what was paid."""
        sales = self.rows(0, sent)
        items, prices = sales["item"].to_numpy(), sales["price"].to_numpy()
        order = np.argsort(items, kind="stable")
        by_item = items[order]
        starts = np.flatnonzero(np.r_[True, by_item[1:] != by_item[:-1]])
        place = np.arange(sent) - np.repeat(starts, np.diff(np.r_[starts, sent]))
        last = np.flatnonzero(place % SALES == SALES - 1)
        sums = np.r_[0, np.cumsum(prices[order])]
        paid = sums[last + 1] - sums[last + 1 - SALES]
        newest = order[last]
        by_number = np.argsort(newest)
        return pa.table({"newest": newest[by_number], "paid": paid[by_number]})


def _mixed(numbers: Numbers) -> npt.NDArray[np.uint64]:
    """Numbers that look drawn, and follow from ``numbers`` however they are divided."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(32))
