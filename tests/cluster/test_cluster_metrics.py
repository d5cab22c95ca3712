"""What a server of a cluster says of it in numbers."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from holdfast.cli import main
from holdfast.cluster.cluster_metrics import ClusterMetrics
from holdfast.nodes.http_server import serve_http

STATUS: dict[str, Any] = {
    "asked": "a",
    "coordinator": "127.0.0.1:1",
    "term": 7,
    "unmanaged": "",
    "servers": {
        "a": {
            "address": "127.0.0.1:1",
            "cpu": 0.25,
            "memory": 0.5,
            "delays_ms": {"127.0.0.1:2": 12.0, "127.0.0.1:3": None, "127.0.0.1:4": 3.0},
        },
        "b": {"address": "127.0.0.1:2"},
        "c": {"address": "127.0.0.1:3"},
    },
    "missing": {"127.0.0.1:4": {"name": "d"}},
    "submissions": {
        "one": {
            "placed": {"main": ["a", "b"]},
            "note": "",
            "cost": 1_234.5,
            "collected": {"feeds": 3, "replicas": 1, "revived": 2, "added": 0},
        },
        "two": {"placed": {"main": ["c"]}, "note": ""},
    },
}


def test_what_cluster_status_says_in_numbers() -> None:
    registry = CollectorRegistry()
    registry.register(ClusterMetrics(lambda: STATUS, lambda: 4))
    lines = generate_latest(registry).decode().splitlines()
    assert {
        'holdfast_cluster_servers{state="there"} 3.0',
        'holdfast_cluster_servers{state="missing"} 1.0',
        "holdfast_cluster_coordinates 1.0",
        "holdfast_cluster_managed 1.0",
        "holdfast_cluster_term 7.0",
        "holdfast_cluster_cpu 0.25",
        'holdfast_cluster_delay_seconds{server="b"} 0.012',
        'holdfast_cluster_replicas{fragment="main",submission="one"} 2.0',
        'holdfast_cluster_network_cost{submission="one"} 1234.5',
        'holdfast_cluster_collected_total{kind="revived",submission="one"} 2.0',
        "holdfast_cluster_moves_total 4.0",
    } <= set(lines)
    assert not any("network_cost" in line and '"two"' in line for line in lines)


def test_a_server_that_nobody_manages_is_not_well() -> None:
    problems = {"a": ["1 of 3 servers that vote can be reached, which is no majority"]}
    port = serve_http("127.0.0.1", 0, lambda: problems)
    with pytest.raises(HTTPError) as refused:
        urlopen(f"http://127.0.0.1:{port}/health", timeout=10)
    assert json.loads(refused.value.read())["problems"] == problems


def test_metrics_are_of_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["server", "--listen", "127.0.0.1:1", "--data", "data", "--metrics-port", "0"]
    assert main(command) != 0
    assert "--metrics-port are for clusters: give --seeds, too" in capsys.readouterr().err
