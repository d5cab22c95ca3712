"""Streams over Flight: followed, resumed, restarted; and who is not let in."""

from __future__ import annotations

import datetime
import ipaddress
import time
from pathlib import Path
from typing import Any

import pyarrow.flight as flight
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from holdfast.client import Boundary, Client, ClientError, Tuples, View
from holdfast.core.events import Event, MessageArrived
from holdfast.core.messages import FeedFrames, Subscribe
from holdfast.flight import feeds, peers, security
from holdfast.flight.refused import Refused, refusal_of
from holdfast.flight.security import Security, SecurityError
from holdfast.log import DiskFull
from holdfast.producer import Producer, ProducerError
from tests.flight.nodes import entry_point, location, make_entry, numbers, read_until


def column(view: View, name: str) -> list[Any]:
    """A column of the stable tuples."""
    table = view.stable
    assert table is not None
    values: list[Any] = table[name].to_pylist()
    return values


def test_what_is_sent_is_read_in_order(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node:
        with (
            Producer("load", location(node), name="p", batch_tuples=100) as producer,
            Client("load", {"entry-load": location(node)}, name="reader") as client,
        ):
            for first in range(0, 1_000, 50):
                producer.send(numbers(first, 50))
            assert producer.flush() == 1_000
            view = read_until(client, 1_000, 20.0)
        assert column(view, "number") == list(range(1_000))
        assert column(view, "text")[999] == "tuple 999"
        assert view.tentative is None


def test_a_client_resumes_where_it_stopped(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node:
        with Producer("load", location(node), name="p") as producer:
            producer.send(numbers(0, 300))
        with Client("load", {"entry-load": location(node)}, next_id=250) as client:
            view = read_until(client, 300, 20.0)
        assert column(view, "number") == list(range(250, 300))


def test_boundaries_come_though_nobody_sends(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node:
        with Client("load", {"entry-load": location(node)}) as client:
            found: list[int] = []
            while len(found) < 5:
                event = client.read(10.0)
                assert isinstance(event, Boundary)
                found.append(event.stime)
        assert found == sorted(set(found))


def test_an_entry_point_restarts_without_reusing_or_skipping_an_id(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node:
        port, place = node.port, location(node)
        producer = Producer("load", place, name="p")
        producer.send(numbers(0, 100))
        producer.flush()
        client = Client("load", {"entry-load": place}, name="reader")
    producer.send(numbers(100, 50))  # while it is down
    with entry_point(tmp_path, port=port) as node:
        assert producer.flush() == 150
        view = read_until(client, 150, 20.0)
        assert column(view, "number") == list(range(150))
        producer.close()
        client.close()


def test_a_producer_learns_how_far_it_got(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node:
        with Producer("load", location(node), name="p") as producer:
            producer.send(numbers(0, 70))
        with Producer("load", location(node), name="q") as other:
            assert other.tuples == 0
            other.send(numbers(0, 5))
    with entry_point(tmp_path) as node, Producer("load", location(node), name="p") as again:
        assert again.tuples == 70
        again.send(numbers(70, 1))
        assert again.flush() == 71
        assert node.entry.served.next_id == 76


def test_a_batch_sent_twice_is_taken_once(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node:
        with Producer("load", location(node), name="p") as producer:
            producer.send(numbers(0, 10))
            producer.flush()
            # As if the acknowledgement had been lost.
            producer._sequence, producer._sent_tuples = 0, 0
            producer.send(numbers(0, 10))
            producer.flush()
        assert node.entry.served.next_id == 10


def test_rows_that_do_not_fit_are_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node, Producer("load", location(node), name="p") as producer:
        with pytest.raises(Exception, match="'text'"):
            producer.send(numbers(0, 2).drop_columns(["text"]))
        producer.send([{"number": 7, "text": "seven"}])
        assert producer.flush() == 1


def test_a_full_disk_delays_tuples_and_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with entry_point(tmp_path) as node:
        log = node.store.logs["load"]
        works = log.append
        failures: list[Any] = []

        def full(frames: Any) -> Any:
            if len(failures) < 5:
                failures.append(frames)
                raise DiskFull("no room")
            return works(frames)

        with (
            Producer("load", location(node), name="p", batch_tuples=10) as producer,
            Client("load", {"entry-load": location(node)}) as client,
        ):
            producer.send(numbers(0, 30))
            producer.flush()
            monkeypatch.setattr(log, "append", full)
            for first in range(30, 200, 10):
                producer.send(numbers(first, 10))
            assert producer.flush() == 200
            view = read_until(client, 200, 20.0)
        assert len(failures) == 5
        assert column(view, "number") == list(range(200))


def test_a_client_that_is_not_named_holds_nothing_back(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node:
        with Producer("load", location(node), name="p") as producer:
            producer.send(numbers(0, 10))
        for name in ("stranger", "reader"):
            with Client("load", {"entry-load": location(node)}, name=name) as client:
                read_until(client, 10, 20.0)
                while not isinstance(client.read(5.0), Boundary):
                    pass
                trimmed = node.entry.served.first_id
                assert trimmed == 0 or name == "reader"


def test_what_a_subscriber_lacks_is_taken_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_PIECE_BYTES", 10_000)
    monkeypatch.setattr(feeds, "BLOCK_TUPLES", 300)
    with entry_point(tmp_path) as node:
        with Producer("load", location(node), name="p", batch_tuples=100) as producer:
            for first in range(0, 5_000, 100):
                producer.send(numbers(first, 100))
        taken: list[FeedFrames] = []
        place = {"entry-load": location(node)}
        reader = peers.Peers("reader", place, Security(), lambda event: _keep(taken, event))
        reader.send("entry-load", Subscribe("load", 7, 0, 0))
        deadline = time.monotonic() + 20.0
        while sum(frame.header.count for each in taken for frame in each.frames) < 5_000:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        reader.close()
    assert [message.seq for message in taken] == list(range(len(taken)))
    assert len(taken) > 10


def _keep(taken: list[FeedFrames], event: Event) -> None:
    if isinstance(event, MessageArrived) and isinstance(event.message, FeedFrames):
        taken.append(event.message)


def test_trimmed_tuples_are_not_passed_over(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node:
        with Producer("load", location(node), name="p") as producer:
            producer.send(numbers(0, 10))
        with Client("load", {"entry-load": location(node)}, name="reader") as client:
            read_until(client, 10, 20.0)
            while node.entry.served.first_id < 10:
                client.read(0.1)
        again = Client("load", {"entry-load": location(node)}, name="reader", next_id=3)
        trimmed = "load from entry-load: trimmed: below 10, asked for 3"
        with again, pytest.raises(ClientError, match=trimmed):
            again.read(10.0)


# -- who is not let in ------------------------------------------------------------------


@pytest.mark.parametrize(("token", "what"), [(None, "no token"), ("b", "the wrong token")])
def test_a_wrong_token_is_refused(tmp_path: Path, token: str | None, what: str) -> None:
    with entry_point(tmp_path, Security(token="a")) as node:
        wrong = Security(token=token)
        client = Client("load", {"entry-load": location(node)}, name="c", security=wrong)
        with client, pytest.raises(ClientError, match=f"entry-load refuses c: it sent {what}"):
            client.read(10.0)
        with pytest.raises(ProducerError, match=f"entry-load refuses p: it sent {what}"):
            Producer("load", location(node), name="p", security=wrong)
        right = Security(token="a")
        with Client("load", {"entry-load": location(node)}, security=right) as client:
            assert isinstance(client.read(10.0), Boundary)


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with entry_point(tmp_path) as node:
        with monkeypatch.context() as patch:
            patch.setattr(security, "PROTOCOL", 99)
            headers = Security().headers("c")
        call = flight.FlightCallOptions(timeout=5, headers=headers)
        refused = pytest.raises(
            flight.FlightServerError, match=r"entry-load speaks protocol \d+, c speaks 99"
        )
        with peers.connect(location(node), Security()) as client:
            with refused as failed:
                list(client.do_action(flight.Action("status", b""), call))
            assert refusal_of(failed.value) is Refused.ASKED
            with refused as failed:
                descriptor = flight.FlightDescriptor.for_command(b"{}")
                client.do_put(descriptor, node.schemas["load"], call)[1].read()
            assert refusal_of(failed.value) is Refused.ASKED


def test_an_unknown_stream_is_named(tmp_path: Path) -> None:
    refused = pytest.raises(ClientError, match="entry-load serves no stream 'lode'")
    with entry_point(tmp_path) as node:
        client = Client("lode", {"entry-load": location(node)})
        with client, refused:
            client.read(10.0)


def test_listening_for_others_needs_token_and_tls(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match="a token and TLS is missing"):
        make_entry(tmp_path / "a", host="0.0.0.0")
    with pytest.raises(SecurityError, match="TLS is missing"):
        make_entry(tmp_path / "b", Security(token="a"), host="0.0.0.0")


def self_signed(directory: Path) -> tuple[Path, Path]:
    """A certificate for this machine that says nothing of Holdfast, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), loopback])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    certificate_path, key_path = directory / "certificate.pem", directory / "key.pem"
    certificate_path.write_bytes(made.public_bytes(pem))
    key_path.touch(0o600)
    key_path.write_bytes(secret)
    return certificate_path, key_path


def test_tls(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    both = Security.read("a", certificate, key, certificate)
    with entry_point(tmp_path / "entry", both) as node:
        assert location(node).startswith("grpc+tls://")
        with (
            Producer("load", location(node), name="p", security=both) as producer,
            Client("load", {"entry-load": location(node)}, security=both) as client,
        ):
            producer.send(numbers(0, 3))
            assert column(read_until(client, 3, 20.0), "number") == [0, 1, 2]


def test_tuples_have_the_stream_s_columns(tmp_path: Path) -> None:
    with entry_point(tmp_path) as node:
        with (
            Producer("load", location(node), name="p") as producer,
            Client("load", {"entry-load": location(node)}) as client,
        ):
            producer.send(numbers(0, 3))
            while not isinstance(event := client.read(10.0), Tuples):
                pass
        assert event.stable
        assert event.table.column_names == ["stime", "tmax", "number", "text"]
