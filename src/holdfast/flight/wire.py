"""What goes over the wire: messages as JSON, tuples as native Arrow record batches.

Nothing that arrives is ever unpickled: a message is JSON with a known set of fields, a frame is
a record batch of the stream's schema whose ``app_metadata`` is a small JSON object:

    {"feed": 1700000000, "seq": 3, "left": 1, "header": [1, 4711, 300, ...]}

``left`` counts the frames of the same feed message that are still to come; a mark is a batch
without rows. What is tentative has a ``why``, too:

    {"missing": [["load", 1700000000]], "share": 0.5}

``{"refused": why, "detail": "..."}`` in its place ends a feed that was not granted.

``PROTOCOL`` is sent with every call. It changes when the meaning of anything here changes; a
peer of another protocol is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from typing import Any

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
from holdfast.core.records import Membership
from holdfast.errors import HoldfastError

PROTOCOL = 4
# What reading JSON and making something of it may raise, whatever was sent.
NOT_DECODED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


class WireError(HoldfastError):
    """A peer sent something that is no message of this protocol."""


Json = dict[str, Any]


def encode_message(message: Message) -> bytes:
    """A message (not a feed's frames: they travel as record batches) as JSON."""
    return json.dumps({"type": type(message).__name__, **_plain(message)}).encode()


def decode_message(data: bytes) -> Message:
    """The message in ``data``; WireError if there is none."""
    try:
        found = json.loads(data)
        decode = _DECODERS[found["type"]]
        return decode(found)
    except NOT_DECODED as error:
        raise WireError(f"not a message of protocol {PROTOCOL}: {error!r}") from None


def _plain(message: object) -> Json:
    return {each.name: _value(getattr(message, each.name)) for each in fields(message)}  # type: ignore[arg-type]


def _value(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, StreamReport | CopyReport | Membership):
        return _plain(value)
    if isinstance(value, tuple):
        return [_value(each) for each in value]
    return value


def _acks(listed: list[list[Any]]) -> tuple[tuple[str, int], ...]:
    return tuple((str(stream), int(first_needed)) for stream, first_needed in listed)


def _report(found: Json) -> StreamReport:
    return StreamReport(
        str(found["stream"]),
        StreamState(found["state"]),
        int(found["boundary"]),
        int(found["live_boundary"]),
        int(found["first_id"]),
    )


def _copy_report(found: Json) -> CopyReport:
    return CopyReport(
        int(found["term"]),
        CopyState(found["state"]),
        int(found["boundary"]),
        int(found["live_boundary"]),
        bool(found["ready"]),
        bool(found["overloaded"]),
        int(found["holds"]),
        bool(found["stalled"]),
    )


def plain_membership(membership: Membership) -> Json:
    """Who takes part, as JSON has it."""
    return _plain(membership)


def decode_membership(found: Json) -> Membership:
    """What ``plain_membership`` gave; raises one of NOT_DECODED if it is none."""
    added = tuple((str(name), str(like)) for name, like in found["added"])
    return Membership(int(found["epoch"]), _acks(found["gone"]), added)


def _membership(found: Json) -> tuple[int, Membership | None]:
    """The epoch in a heartbeat, and the membership if there is one."""
    listed = found["membership"]
    return int(found["epoch"]), None if listed is None else decode_membership(listed)


_DECODERS: dict[str, Callable[[Json], Message]] = {
    "HeartbeatRequest": lambda found: HeartbeatRequest(
        tuple(str(each) for each in found["streams"]),
        _acks(found["acks"]),
        tuple(int(each) for each in found["feeds"]),
        int(found["newest_feed"]),
        int(found["incarnation"]),
        *_membership(found),
    ),
    "HeartbeatReply": lambda found: HeartbeatReply(
        tuple(_report(each) for each in found["reports"]),
        tuple(int(each) for each in found["feeds"]),
        int(found["incarnation"]),
        *_membership(found),
    ),
    "Subscribe": lambda found: Subscribe(
        str(found["stream"]),
        int(found["feed"]),
        int(found["next_id"]),
        int(found["tentative_boundary"]),
    ),
    "SubscribeRefused": lambda found: SubscribeRefused(
        int(found["feed"]), NotServed(found["why"]), str(found["detail"])
    ),
    "Unsubscribe": lambda found: Unsubscribe(int(found["feed"])),
    "PostponeRequest": lambda found: PostponeRequest(int(found["round"]), int(found["reach"])),
    "PostponeReply": lambda found: PostponeReply(
        int(found["round"]), PostponeAnswer(found["answer"])
    ),
    "PostponeRelease": lambda found: PostponeRelease(int(found["round"])),
    "CopyRequest": lambda found: CopyRequest(_copy_report(found["report"])),
    "CopyReply": lambda found: CopyReply(_copy_report(found["report"])),
    "StateRequest": lambda found: StateRequest(int(found["boundary"])),
    "JoinRequest": lambda found: JoinRequest(int(found["incarnation"]), int(found["round"])),
    "JoinReply": lambda found: JoinReply(
        int(found["incarnation"]), int(found["round"]), bool(found["comes"])
    ),
    "CheckpointTaken": lambda found: CheckpointTaken(int(found["number"])),
    "CheckpointRefused": lambda found: CheckpointRefused(
        int(found["number"]), Refusal(found["reason"])
    ),
}


def encode_header(feed: int, seq: int, left: int, header: Header, why: Why | None = None) -> bytes:
    """The metadata of one frame of a feed."""
    listed = [
        int(header.kind),
        header.first_id,
        header.count,
        header.stime_min,
        header.stime_max,
        header.tmax,
    ]
    found: Json = {"feed": feed, "seq": seq, "left": left, "header": listed}
    if why is not None:
        missing = [[one.stream, one.since] for one in why.missing]
        found["why"] = {"missing": missing, "share": why.share}
    return json.dumps(found).encode()


def _why(found: Json) -> Why:
    missing = (Missing(str(stream), int(since)) for stream, since in found["missing"])
    return Why(tuple(missing), None if found["share"] is None else float(found["share"]))


def encode_refusal(refusal: SubscribeRefused) -> bytes:
    """The metadata that ends a feed that was not granted."""
    return json.dumps({"refused": refusal.why.value, "detail": refusal.detail}).encode()


def decode_metadata(data: bytes) -> Json:
    """The metadata of one frame; ``header`` becomes a Header, ``why`` a Why."""
    try:
        found: Json = json.loads(data)
        if "header" in found:
            kind, *rest = found["header"]
            found["header"] = Header(Kind(kind), *(int(each) for each in rest))
        if "why" in found:
            found["why"] = _why(found["why"])
        return found
    except NOT_DECODED as error:
        raise WireError(f"not a frame of protocol {PROTOCOL}: {error!r}") from None
