"""What the DPC benchmarks run: the paper's query network, and the deployment of it.

Three input streams are merged by the fragment's SUnion and go through a join, the paper's
"generic query network": every tuple finds itself, so each input tuple gives one output tuple,
and the join keeps as many tuples as its window is long. In a chain each further fragment has
a join of its own on the output of the one before. A join of the first stream with itself may stand
beside all of this, with an output of its own: the input that fails does not reach it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from holdfast import Network
from holdfast.core.settings import Policy, Reconcile, Timing
from holdfast.deployment import ClientSpec, Deployment, Endpoint, FragmentSpec, SourceSpec
from holdfast.stream import Stream

SOURCES = ("s1", "s2", "s3")
FAILED = "s3"
OUTPUT = "results"
BESIDE = "beside"
CLIENT = "client"


@dataclass(frozen=True)
class Setting:
    """One experiment's setting; the defaults are the paper's basic one."""

    rate: int = 3_000
    delay_s: float = 3.0
    alpha: float = 0.9
    bucket_ms: int = 200
    fragments: int = 1
    replicas: int = 2
    joins: int = 1
    state_tuples: int = 100
    beside_tuples: int = 0
    while_failed: str = "process"
    while_stabilizing: str = "process"
    reconcile: str = "checkpoint"  # as the paper calls it
    heartbeat_ms: int = 250
    redo_buckets: int = 50
    adapts: bool = False
    own_time: bool = False
    lateness_ms: int = 0
    idle_after_ms: int = 0
    quiet: bool = False

    @property
    def policy(self) -> str:
        return f"{self.while_failed} & {self.while_stabilizing}"

    @property
    def fragment_names(self) -> tuple[str, ...]:
        # "main" is what a network begins with.
        return ("main", *(f"node{index}" for index in range(2, self.fragments + 1)))

    def timing(self) -> Timing:
        return Timing(
            bucket_us=self.bucket_ms * 1000,
            delay_us=int(self.delay_s * 1e6),
            alpha=self.alpha,
            alpha_adapts=self.adapts,
            heartbeat_interval_us=self.heartbeat_ms * 1000,
            redo_buckets=self.redo_buckets,
        )

    def same_network(self) -> tuple[Any, ...]:
        """Settings that agree in this run the same query."""
        query = (self.bucket_ms, self.fragments, self.joins, self.state_tuples, self.own_time)
        return (self.rate, self.beside_tuples, *query)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def build_network(spark: SparkSession, setting: Setting) -> Network:
    """The query."""
    network = Network("dpc", spark=spark, bucket=f"{setting.bucket_ms} ms", partitions=2)
    columns, stime = "number bigint, made bigint", None
    if setting.own_time:
        columns, stime = f"{columns}, at timestamp", "at"
    sources = [network.source(name, columns, stime=stime) for name in SOURCES]
    stream = sources[0].union(*sources[1:])
    window_us = max(1, setting.state_tuples * 1_000_000 // setting.rate)
    if setting.beside_tuples:
        # A third of the tuples come by the first stream.
        beside_us = setting.beside_tuples * len(SOURCES) * 1_000_000 // setting.rate
        _joined_with_itself(sources[0], f"{beside_us} us").output(BESIDE)
    names = setting.fragment_names
    for index in range(len(names)):
        if index > 0:
            stream = stream.fragment(names[index])
        for _ in range(setting.joins):
            stream = _joined_with_itself(stream, f"{window_us} us")
    stream.output(OUTPUT)
    return network


def _joined_with_itself(stream: Stream, window: str) -> Stream:
    other = stream.selectExpr("number", "made as other")
    return stream.join(other, "number", within=window).drop("other")


def describe_deployment(setting: Setting, directory: Path) -> Deployment:
    """Entry points, replicas of every fragment, and one client."""
    replicas = (Endpoint(),) * setting.replicas
    return Deployment(
        name="dpc",
        path=directory / "deployment.toml",
        network=directory / "network.py",
        data=directory,
        timing=setting.timing(),
        sources={name: SourceSpec(name, Endpoint()) for name in SOURCES},
        fragments={
            name: FragmentSpec(
                name,
                replicas,
                Policy(setting.while_failed),
                Policy(setting.while_stabilizing),
                Reconcile.UNDO if setting.reconcile == "undo" else Reconcile.RESTORE,
            )
            for name in setting.fragment_names
        },
        clients={CLIENT: ClientSpec(CLIENT, OUTPUT)},
    )
