"""A peer is gone when its port refuses a connection, and not when it is only slow."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

import pytest

from holdfast.core.events import Event, PeerUnreachable
from holdfast.core.messages import CopyReport, CopyRequest, CopyState
from holdfast.flight.gone import nobody_listens
from holdfast.flight.peers import Peers
from holdfast.flight.refused import Refused
from holdfast.flight.security import Security

ASK = CopyRequest(CopyReport(0, CopyState.PRIMARY, 0, 0, True))
PATIENCE = 60.0
Port = Callable[[], contextlib.AbstractContextManager[str]]


@contextlib.contextmanager
def refused() -> Iterator[str]:
    """A port that is held, so that nobody else can listen there, and on which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"grpc://127.0.0.1:{held.getsockname()[1]}"


@contextlib.contextmanager
def full() -> Iterator[str]:
    """A port whose backlog is full: the kernel answers nothing at all, as if it were far away."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"grpc://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """A port that takes connections and says nothing on them: a process that is stopped."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"grpc://127.0.0.1:{listener.getsockname()[1]}"


def test_a_refused_connection_is_told_from_one_that_nobody_takes() -> None:
    with refused() as location:
        assert nobody_listens(location)
    with full() as location:
        assert not nobody_listens(location, 0.2)
    with silent() as location:
        assert not nobody_listens(location)
    assert not nobody_listens("grpc://nowhere")


@pytest.mark.parametrize(("port", "is_gone"), [(refused, True), (full, False), (silent, False)])
def test_only_a_peer_that_is_gone_is_unreachable(port: Port, is_gone: bool) -> None:
    events: SimpleQueue[Event] = SimpleQueue()
    problems: SimpleQueue[str] = SimpleQueue()

    def tell(peer: str, text: str, why: Refused | None) -> None:
        problems.put(text)

    with port() as location:
        peers = Peers("a", {"b": location}, Security(), events.put, tell)
        # The first call may just take too long. Who decides does so in the thread that tells, and
        # that closing waits for.
        said = ""
        deadline = time.monotonic() + PATIENCE
        while "cannot be reached" not in said:
            assert time.monotonic() < deadline, said
            peers.send("b", ASK)
            with contextlib.suppress(Empty):
                said = problems.get(timeout=0.05)
        peers.close()
    found = set() if events.empty() else {events.get_nowait()}
    assert found == ({PeerUnreachable("b")} if is_gone else set())
