"""Every process serves its metrics over HTTP, and writes JSON lines."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from holdfast.core.frame import Kind, Missing, Why
from holdfast.nodes.http_server import serve_http
from holdfast.nodes.journal import Journal, adopt_logging
from holdfast.nodes.metrics import NodeMetrics, registry
from tests.flight.nodes import entry_point


def test_metrics_are_served() -> None:
    metrics = NodeMetrics("main-9", "replica")
    metrics.in_state("recovering")
    metrics.in_state("stable")
    metrics.tuples_in.inc(7)
    metrics.sent_tuples("out", "screen", Kind.STABLE, 3, 120)
    port = serve_http("127.0.0.1", 0, dict)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'holdfast_state{kind="replica",node="main-9",state="stable"} 1.0' in text
    assert 'holdfast_state{kind="replica",node="main-9",state="recovering"} 0.0' in text
    assert 'holdfast_tuples_in_total{kind="replica",node="main-9"} 7.0' in text
    sent = '{kind="replica",label="stable",node="main-9",to="screen"}'
    assert f"holdfast_tuples_sent_total{sent} 3.0" in text
    assert f"holdfast_bytes_sent_total{sent} 120.0" in text


def test_metrics_say_what_tentative_results_lack() -> None:
    metrics = NodeMetrics("main-8", "replica")
    output = '{kind="replica",node="main-8",output="busy"}'
    lacked = '{kind="replica",missing="load",node="main-8",output="busy"}'
    metrics.rests_on("busy", Why((Missing("load", 5_000_000),), 0.75))
    text = generate_latest(registry).decode()
    assert f"holdfast_tentative_share{output} 0.75" in text
    assert f"holdfast_missing_seconds{lacked} 5.0" in text
    metrics.rests_on("busy", None)
    text = generate_latest(registry).decode()
    assert f"holdfast_tentative_share{output} 1.0" in text
    assert f"holdfast_missing_seconds{lacked} 0.0" in text


def test_what_is_said_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    Journal("main-9").write("state", level="warning", state="stable")
    line = json.loads(capsys.readouterr().err)
    assert line["node"] == "main-9"
    assert (line["event"], line["level"], line["state"]) == ("state", "warning", "stable")


def test_what_modules_log_is_json_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("holdfast")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    adopt_logging("main-9")
    logging.getLogger("holdfast.log.opening").warning("%s: cut %d bytes", "load", 7)
    line = json.loads(capsys.readouterr().err)
    assert (line["process"], line["level"]) == ("main-9", "warning")
    assert line["event"] == "load: cut 7 bytes"


def test_health_says_whether_every_node_makes_progress() -> None:
    problems: dict[str, list[str]] = {"main-9": []}
    port = serve_http("127.0.0.1", 0, lambda: problems)
    url = f"http://127.0.0.1:{port}/health"
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert (answer.status, json.load(answer)["well"]) == (200, True)
    problems["main-9"] = ["the stable job is not done after 5 s"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, timeout=10)
    assert refused.value.code == 503
    assert json.load(refused.value)["problems"] == problems


def test_a_node_is_well_unless_something_keeps_it_from_making_progress(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node:
        assert node.health() == []
        node.problems.tell("trim", "cannot be trimmed now")
        assert node.health() == []
        # not "disk": the node's own next write would say that it is over
        node.problems.tell("engine", "cannot compute")
        assert node.health() == ["cannot compute"]
        node.problems.over("engine")
        assert node.health() == []
