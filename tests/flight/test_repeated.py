"""What is said again and again does not wait in line: only the newest of it is sent."""

from __future__ import annotations

import threading

import pyarrow.flight as flight

from holdfast.core.messages import CheckpointTaken, JoinReply, JoinRequest, Message
from holdfast.flight.links import Links
from holdfast.flight.peers import Peers
from holdfast.flight.security import Security
from holdfast.flight.wire import decode_message

PATIENCE = 60.0


class Listener(flight.FlightServerBase):  # type: ignore[misc]
    """Keeps what it is told."""

    def __init__(self, expected: int) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.heard: list[Message] = []
        self.done = threading.Event()
        self._expected = expected

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        self.heard.append(decode_message(action.body.to_pybytes()))
        if len(self.heard) == self._expected:
            self.done.set()
        return []


def test_of_requests_and_replies_that_wait_the_newest_is_sent() -> None:
    with Listener(4) as listener:
        links = Links()
        links.cut("b")
        peers = Peers(
            "a",
            {"b": f"grpc://127.0.0.1:{listener.port}"},
            Security(),
            lambda event: None,
            links=links,
        )
        # One that says so begins to wait for the link; the others wait for it.
        peers.send("b", CheckpointTaken(1))
        for each in range(1, 200):
            peers.send("b", JoinRequest(9, each))
            peers.send("b", JoinReply(8, each, True))
        peers.send("b", CheckpointTaken(2))
        links.heal("b")
        assert listener.done.wait(PATIENCE)
        peers.close()
    assert listener.heard == [
        CheckpointTaken(1),
        JoinRequest(9, 199),
        JoinReply(8, 199, True),
        CheckpointTaken(2),
    ]
