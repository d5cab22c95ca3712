"""Secrets that are none, connections that would give one away, and callers that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.flight as flight
import pytest

from holdfast.deployment import SecuritySpec
from holdfast.flight import peers, refusals
from holdfast.flight.refusals import Refusals
from holdfast.flight.security import Security, SecurityError
from holdfast.flight.server import StreamServer
from holdfast.producer import Producer
from tests.flight.nodes import entry_point, location, numbers


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o604])
def test_a_token_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    token.chmod(mode)
    with pytest.raises(SecurityError, match="no secret; make it private, chmod 600 token"):
        SecuritySpec(token_file=token).read()
    token.chmod(0o600)
    assert SecuritySpec(token_file=token).read().token == "secret"


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("-----BEGIN PRIVATE KEY-----\n")
    key.chmod(0o644)
    with pytest.raises(SecurityError, match=r"key\.pem: others than its owner may read"):
        SecuritySpec(key=key).read()


@pytest.mark.parametrize("text", ["", "\n", "two\nlines", "\x00", "Überraschung"])
def test_what_cannot_be_a_token_is_named(tmp_path: Path, text: str) -> None:
    token = tmp_path / "token"
    token.write_text(text)
    token.chmod(0o600)
    with pytest.raises(SecurityError, match="token"):
        SecuritySpec(token_file=token).read()


def test_a_token_is_not_sent_in_the_clear_to_another_machine() -> None:
    secret = Security(token="a")
    for place in ("grpc://10.0.0.2:4711", "grpc://example.org:4711", "grpc+tcp://10.0.0.2:1"):
        with pytest.raises(SecurityError, match="would send the token in the clear"):
            peers.connect(place, secret)
    with pytest.raises(SecurityError, match="would send the token in the clear"):
        Producer("load", "grpc://10.0.0.2:4711", name="p", security=secret)
    for place in ("grpc://127.0.0.1:4711", "grpc://localhost:1", "grpc://[::1]:1"):
        peers.connect(place, secret).close()
    peers.connect("grpc+tls://10.0.0.2:4711", secret).close()


def test_refused_calls_are_told_of_with_the_caller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with entry_point(tmp_path, Security(token="a")) as node:
        for _ in range(20):
            with pytest.raises(Exception, match="entry-load refuses burglar: it sent no token"):
                peers.call(location(node), Security(), "burglar", "status")
        status = peers.call(location(node), Security(token="a"), "c", "status")
        assert status["refused_calls"] == 20
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    refused = [line for line in said if line["event"] == "refused call"]
    assert len(refused) == 1, refused
    assert refused[0]["caller"] == "burglar"
    assert "127.0.0.1" in refused[0]["address"]


def test_refused_calls_do_not_fill_a_disk() -> None:
    told: list[tuple[str, str, str, int]] = []
    now = [0.0]
    noted = Refusals(lambda *each: told.append(each), lambda: now[0])
    for number in range(10_000):
        noted.note(f"burglar {number % 1_000} {'x' * 1_000}", f"ipv4:10.0.0.1:{number}", "no token")
    assert noted.total == 10_000
    assert len(told) == refusals.MOST_CALLERS + 1
    assert all(len(caller) <= refusals.LONGEST_NAME for caller, *_ in told)
    now[0] += refusals.AGAIN_SECONDS
    noted.note("somebody", "ipv4:10.0.0.2:7", "no token")
    assert sum(calls for *_, calls in told) == noted.total, "every call is told of in the end"
    (others,) = [
        calls for caller, *_, calls in told[refusals.MOST_CALLERS + 1 :] if caller == "others"
    ]
    assert others > 9_000
    # Those before are no reason not to name who comes now.
    assert told[-1] == ("somebody", "ipv4:10.0.0.2", "no token", 1)


def test_of_a_stranger_s_stream_nothing_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC reads the one message of other calls before it asks; of a stream it reads nothing."""
    begun: list[object] = []
    monkeypatch.setattr(StreamServer, "do_put", lambda self, *rest: begun.append(rest))
    with entry_point(tmp_path, Security(token="a")) as node:
        headers = Security(token="b").headers("burglar")
        options = flight.FlightCallOptions(timeout=10, headers=headers)
        refused = pytest.raises(flight.FlightUnauthenticatedError, match="the wrong token")
        with peers.connect(location(node), Security()) as client, refused:
            descriptor = flight.FlightDescriptor.for_command(b"{}")
            writer, reader = client.do_put(descriptor, numbers(0, 1).schema, options)
            reader.read()
            writer.close()
    assert begun == []
