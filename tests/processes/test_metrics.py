"""Every process serves its metrics over HTTP, and writes JSON lines."""

from __future__ import annotations

import json
import urllib.request

import pytest

from holdfast.runtime.journal import Journal
from holdfast.runtime.metrics import NodeMetrics, serve_metrics


def test_metrics_are_served() -> None:
    metrics = NodeMetrics("main-9", "replica")
    metrics.in_state("recovering")
    metrics.in_state("stable")
    metrics.tuples_in.inc(7)
    metrics.sent_tuples("screen", "stable", 3, 120)
    port = serve_metrics("127.0.0.1", 0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'holdfast_state{kind="replica",process="main-9",state="stable"} 1.0' in text
    assert 'holdfast_state{kind="replica",process="main-9",state="recovering"} 0.0' in text
    assert 'holdfast_tuples_in_total{kind="replica",process="main-9"} 7.0' in text
    sent = '{kind="replica",label="stable",process="main-9",to="screen"}'
    assert f"holdfast_tuples_sent_total{sent} 3.0" in text
    assert f"holdfast_bytes_sent_total{sent} 120.0" in text


def test_what_is_said_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    Journal("main-9").write("state", level="warning", state="stable")
    line = json.loads(capsys.readouterr().err)
    assert line["process"] == "main-9"
    assert (line["event"], line["level"], line["state"]) == ("state", "warning", "stable")
