"""What goes over the wire comes back the same, and nothing else is taken."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.core.frame import Header, Kind, Missing, Why
from holdfast.core.messages import (
    CheckpointRefused,
    CheckpointTaken,
    CopyReply,
    CopyReport,
    CopyRequest,
    CopyState,
    HeartbeatReply,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    Message,
    NotServed,
    PostponeAnswer,
    PostponeRelease,
    PostponeReply,
    PostponeRequest,
    Refusal,
    StateRequest,
    StreamReport,
    StreamState,
    Subscribe,
    SubscribeRefused,
    Unsubscribe,
)
from holdfast.core.provenance import Claim, Trail
from holdfast.core.records import Membership
from holdfast.flight.wire import (
    WireError,
    decode_message,
    decode_metadata,
    encode_header,
    encode_message,
    encode_refusal,
)

MESSAGES: list[Message] = [
    HeartbeatRequest(("a", "b"), (("a", 4), ("b", 5)), (7, 8), 9, 10),
    HeartbeatReply((StreamReport("a", StreamState.UP_FAILURE, 1, 2, 3),), (7, 3), 11),
    HeartbeatRequest(("a",), (), (), 9, 10, 3, Membership(3, (("x", 1),), (("y", "z"),))),
    HeartbeatReply((), (), 11, 4, Membership(4, (("x", 1), ("w", 4)))),
    Subscribe("a", 7, 100, 2**60),
    SubscribeRefused(7, NotServed.TRIMMED, "below 5"),
    Unsubscribe(7),
    PostponeRequest(3, 1700),
    PostponeReply(3, PostponeAnswer.GRANTED),
    PostponeRelease(3),
    CopyRequest(CopyReport(3, CopyState.AWAKE, 10, 20, True, False, 7)),
    CopyReply(CopyReport(4, CopyState.PRIMARY, -1, -1, False, True)),
    StateRequest(-1),
    JoinRequest(1700, 2),
    JoinReply(1700, 2, True),
    JoinReply(1700, 3, False, refused=Refusal.OTHER_QUERY),
    CheckpointTaken(7),
    CheckpointRefused(7, Refusal.WHOLE_NEEDED),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_messages_come_back_the_same(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04\x95",
        b"[]",
        b'{"type": "Subscribe"}',
        b'{"type": "Shutdown", "now": true}',
        b'{"type": "Unsubscribe", "feed": "seven"}',
        b'{"type": "PostponeReply", "round": 1, "answer": "perhaps"}',
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="not a message"):
        decode_message(data)


def test_a_refusal_names_the_field_and_what_came() -> None:
    with pytest.raises(WireError, match=r"Expected `int`, got `str` - at `\$\.feed`"):
        decode_message(b'{"type": "Unsubscribe", "feed": "seven"}')
    with pytest.raises(WireError, match="missing required field `feed`"):
        decode_message(b'{"type": "Unsubscribe"}')


def test_headers_come_back_the_same() -> None:
    header = Header(Kind.STABLE, 4711, 300, 1_000_000, 2_000_000, 2_000_000)
    found = decode_metadata(encode_header(12, 3, 1, header))
    assert found == {"feed": 12, "seq": 3, "left": 1, "header": header}
    assert decode_metadata(encode_refusal(SubscribeRefused(12, NotServed.LOST, "at 5"))) == {
        "refused": "lost",
        "detail": "at 5",
    }


def test_why_a_frame_is_tentative_comes_along() -> None:
    header = Header(Kind.TENTATIVE, 7, 2, 10, 20, 20)
    for why in (Why((Missing("load", 5), Missing("weather", 6)), 0.25), Why((), None)):
        assert decode_metadata(encode_header(1, 0, 0, header, why))["why"] == why


def test_what_early_results_claim_comes_along() -> None:
    header = Header(Kind.EARLY, 0, 2, 10, 20, 20)
    claims = (Claim(Trail(2, 1), 4711, 5011, 20), Claim(Trail(timed=True), 0, 1, 10))
    assert decode_metadata(encode_header(1, 0, 0, header, None, claims))["claims"] == claims
    for wrong in ("[[1, 0, 5]]", "7", '[["a", 0, 0, 1, 2, 3]]'):
        with pytest.raises(WireError, match="not a frame"):
            decode_metadata(f'{{"claims": {wrong}}}'.encode())


def test_a_why_that_cannot_be_is_refused() -> None:
    for why in ('{"missing": [["load"]], "share": 1}', '{"missing": [], "share": 7}', "3"):
        with pytest.raises(WireError, match="not a frame"):
            decode_metadata(f'{{"why": {why}}}'.encode())


def test_a_header_that_cannot_be_is_refused() -> None:
    with pytest.raises(WireError, match="not a frame"):
        decode_metadata(b'{"feed": 1, "seq": 0, "left": 0, "header": [99, 0, 0, 0, 0, 0]}')


_FIRST_MESSAGES = """
import sys, threading
from holdfast.flight.wire import decode_message
sys.setswitchinterval(1e-6)
data = (b'{"type": "HeartbeatReply", "feeds": [], "reports": '
        b'[{"stream": "s", "state": "stable", "boundary": 0, "live_boundary": 0}]}')
gate = threading.Barrier(8)
def first():
    gate.wait(30)
    decode_message(data)
threads = [threading.Thread(target=first) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join(30)
"""


def test_the_first_messages_of_a_process_may_come_on_many_threads_at_once() -> None:
    # A node that restarts is spoken to by all its peers at once, each on a thread of its own.
    ends = [
        subprocess.run([sys.executable, "-c", _FIRST_MESSAGES], timeout=60, check=False).returncode
        for _ in range(6)
    ]
    assert ends == [0] * 6
