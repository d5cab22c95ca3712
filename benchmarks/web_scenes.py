"""Small deployments that really run, for pictures on the pages of results: the same query with
every protection, and a cluster whose replicas race."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.placement_moves import running_cluster
from benchmarks.web_browser import Visitor, chromium
from benchmarks.web_setting import NETWORK, running
from holdfast.deployment import load_deployment
from holdfast.web.serve import WebServer, serving, watched

_SECONDS = 300.0
_TALL, _WIDE = 1000, 1440

_EACH_PROTECTION = """\
from pyspark.sql import functions as F

from holdfast import Network, window

network = Network("protections", bucket="500 ms", partitions=1)
load = network.source("load", "value bigint")
for protection in ("active", "passive", "hybrid", "race"):
    keyed = load.fragment(protection).selectExpr("value % 8 as server", "value")
    keyed.groupBy(window("1 second"), "server").agg(F.sum("value").alias("sum")).output(protection)
"""
_SPARK = """
[spark]
master = "local[1]"
[spark.config]
"spark.driver.memory" = "512m"
"""
_PROTECTIONS = (
    """\
name = "protections"
network = "network.py"
chaos = true
[timing]
delay = "3 seconds"
[sources.load]
from = "rate:100"
"""
    + _SPARK
    + "".join(
        f"""
[fragments.{each}]
protection = "{each}"
colocate = ["first", "second"]
"""
        for each in ("active", "passive", "hybrid", "race")
    )
)
_CLUSTER = (
    """\
name = "monitoring"
network = "network.py"
chaos = true
[security]
token_file = "token"
[timing]
delay = "4 seconds"
[sources.load]
from = "rate:200"
listen = "a"
[sources.pings]
from = "rate:200"
listen = "a"
[fragments.main]
replicas = ["b", "c"]
protection = "race"
[clients.recorder]
output = "busy"
sink = "jsonl:busy.jsonl"
listen = "a"
"""
    + _SPARK
)


def take_protections(take: Callable[[Visitor, str], None]) -> None:
    """The process of all first copies is killed, that of the second ones paused for a while."""
    with _local(_EACH_PROTECTION, _PROTECTIONS, _TALL) as visitor:
        _wait_well(visitor, 8)
        _settle(visitor, 15.0)
        visitor.show("controls")
        _strike(visitor, "first", "Kill")
        visitor.wait(lambda: _states(visitor).get("active-1") != "stable", "the loss", _SECONDS)
        _wait_well(visitor, 8)
        _strike(visitor, "second", "Pause")
        _settle(visitor, 6.0)
        _strike(visitor, "second", "Resume")
        _wait_well(visitor, 8)
        _settle(visitor, 5.0)
        visitor.show("timeline")
        _settle(visitor, 2.0)
        take(visitor, "protections")


def take_cluster(take: Callable[[Visitor, str], None]) -> None:
    """Four servers; two of them have replicas that race."""
    with (
        running_cluster(NETWORK, _CLUSTER) as (cluster, _),
        watched(_options(cluster.addresses["a"], cluster.token)) as server,
        _visiting(server, 640) as visitor,
    ):
        _wait_well(visitor, 2)
        visitor.show("physical")
        _settle(visitor, 15.0)
        visitor.page.click("[data-process=main-1]")
        _settle(visitor, 1.0)
        take(visitor, "race")


SCENES = {"protections": take_protections, "cluster": take_cluster}


@contextlib.contextmanager
def _local(network: str, text: str, tall: int) -> Iterator[Visitor]:
    with tempfile.TemporaryDirectory(prefix="holdfast-pictures-") as directory:
        path = Path(directory) / "deployment.toml"
        path.with_name("network.py").write_text(network)
        path.write_text(text)
        deployment = load_deployment(path)
        with running(deployment), _visiting(WebServer(deployment), tall) as visitor:
            yield visitor


@contextlib.contextmanager
def _visiting(server: WebServer, tall: int) -> Iterator[Visitor]:
    with serving(server), chromium() as browser:
        visitor = Visitor(browser, server.address)
        visitor.page.set_viewport_size({"width": _WIDE, "height": tall})
        visitor.come(server.link())
        yield visitor
        visitor.check()


def _options(address: str, token: Path) -> argparse.Namespace:
    return argparse.Namespace(deployment=address, host="127.0.0.1", port=0, name=[],
                              submission=None, security=None, token_file=token,
                              tokens=None)  # fmt: skip


def _states(visitor: Visitor) -> dict[str, str]:
    nodes: dict[str, dict[str, Any]] = visitor.state("live.nodes")
    return {name: each["state"] for name, each in nodes.items() if each["kind"] == "replica"}


def _wait_well(visitor: Visitor, count: int) -> None:
    def well() -> bool:
        states = _states(visitor)
        return len(states) == count and set(states.values()) <= {"stable", "standing by"}

    visitor.wait(well, f"{count} replicas that are well", _SECONDS)


def _strike(visitor: Visitor, process: str, title: str) -> None:
    visitor.page.select_option("select[name=process]", process)
    visitor.page.click(f"button:text-is('{title}')")


def _settle(visitor: Visitor, seconds: float) -> None:
    """Pictures of what goes on need some of it."""
    visitor.page.wait_for_timeout(1000 * seconds)
