"""A message from somebody unknown, or from a liar, is an error to them and nothing to the node."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.flight as flight
import pytest

from holdfast.core.events import MessageArrived, Started
from holdfast.core.frame import Header, Kind
from holdfast.core.machine import PeerError
from holdfast.core.messages import (
    CheckpointTaken,
    CopyRequest,
    FeedFrames,
    HeartbeatReply,
    HeartbeatRequest,
    Message,
    StreamFrame,
    StreamReport,
    StreamState,
    Subscribe,
    Unsubscribe,
)
from holdfast.core.replica import Replica
from holdfast.core.settings import Input, Output, ReplicaSettings
from holdfast.flight.peers import CALL_SECONDS, connect
from holdfast.flight.security import Security
from holdfast.flight.wire import decode_message, encode_message
from tests.flight.test_wire import MESSAGES
from tests.nodes.strangers import BareNode, location, running

SETTINGS = ReplicaSettings(
    "r1",
    (Input("x", ("entry-x",)), Input("y", ("entry-y",))),
    (Output("o", frozenset({"x", "y"}), ("reader",)),),
    ("r2",),
)
# Nobody listens there.
BOOK = dict.fromkeys(("entry-x", "entry-y"), "grpc://127.0.0.1:9")
WELCOME = (HeartbeatRequest, Subscribe, Unsubscribe)


def say(client: flight.FlightClient, name: str, action: str, message: bytes) -> list[bytes]:
    options = flight.FlightCallOptions(timeout=CALL_SECONDS, headers=Security().headers(name))
    found = client.do_action(flight.Action(action, message), options)
    return [each.body.to_pybytes() for each in found]


def test_whatever_a_stranger_says_the_replica_goes_on(tmp_path: Path) -> None:
    node = BareNode(SETTINGS, tmp_path, BOOK)
    with running(node), connect(location(node), Security()) as client:
        for message in MESSAGES:
            if isinstance(message, WELCOME):
                say(client, "stranger", "message", encode_message(message))
                continue
            with pytest.raises(flight.FlightServerError, match=type(message).__name__):
                say(client, "stranger", "message", encode_message(message))
        request = HeartbeatRequest(("o",), (("o", 1 << 80),), (), 0)
        reply = decode_message(say(client, "s", "heartbeat", encode_message(request))[0])
    assert isinstance(reply, HeartbeatReply)
    assert node.broken == []


def test_a_partner_that_cannot_be_reached_is_no_reason_to_end(tmp_path: Path) -> None:
    """It is asked, and where it is nobody has written down."""
    node = BareNode(SETTINGS, tmp_path, BOOK)
    with running(node), connect(location(node), Security()) as client:
        say(client, "r2", "message", b'{"type": "PostponeRequest", "round": 1, "reach": 0}')
        request = HeartbeatRequest(("o",), (), (), 0)
        assert say(client, "s", "heartbeat", encode_message(request))
    assert node.broken == []


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b"[]", b'{"type": []}', b'{"type": "PostponeRequest", "round": Infinity}'],
    ids=["deep", "list", "no type", "infinite"],
)
def test_what_is_no_message_is_an_error_to_the_sender(tmp_path: Path, body: bytes) -> None:
    node = BareNode(SETTINGS, tmp_path, BOOK)
    said = pytest.raises(flight.FlightServerError, match="not a message")
    with running(node), connect(location(node), Security()) as client, said:
        say(client, "r2", "message", body)
    assert node.broken == []


def lies(dice: random.Random) -> Message:
    """What a producer may not say, or not now."""

    def number() -> int:
        return dice.choice((-1, 0, 1, 5, 100, 1 << 40, 1 << 70, -(1 << 70)))

    reports = tuple(
        StreamReport(dice.choice("xyoz"), dice.choice(list(StreamState)), number(), number())
        for _ in range(dice.randrange(4))
    )
    if dice.random() < 0.5:
        feeds = tuple(number() for _ in range(dice.randrange(3)))
        return HeartbeatReply(reports, feeds)
    frames = []
    for _ in range(dice.randrange(4)):
        kind = dice.choice(list(Kind))
        low, high = sorted((number(), number()))
        count = max(0, min(number(), 200)) or 1
        frames.append(StreamFrame(Header(kind, abs(number()), count, low, high, number()), None))
    return FeedFrames(dice.randrange(45), dice.choice((0, 0, 1)), tuple(frames))


def test_a_lying_producer_breaks_none_of_our_rules() -> None:
    dice = random.Random(1)
    told_off = 0
    for _ in range(300):
        replica = Replica(SETTINGS)
        replica.handle(Started(), 1)
        for now in range(2, 40):
            sender = dice.choice(("entry-x", "entry-y", "stranger", "r2"))
            try:
                replica.handle(MessageArrived(sender, lies(dice)), now)
            except PeerError:
                told_off += 1
            replica.validate()
    assert told_off


def test_messages_between_copies_are_no_business_of_a_replica(tmp_path: Path) -> None:
    node = BareNode(SETTINGS, tmp_path, BOOK)
    with running(node), connect(location(node), Security()) as client:
        for message in MESSAGES:
            if isinstance(message, CopyRequest | CheckpointTaken):
                # What a partner has taken it may say: it may have joined with this one's state.
                sender = "r2" if isinstance(message, CopyRequest) else "stranger"
                with pytest.raises(flight.FlightServerError, match="takes"):
                    say(client, sender, "message", encode_message(message))
    assert node.broken == []
