"""What goes over the wire: messages as JSON, tuples as native Arrow record batches.

Nothing that arrives is ever unpickled: a message is JSON with a known set of fields, a frame is
a record batch of the stream's schema whose ``app_metadata`` is a small JSON object:

    {"feed": 1700000000, "seq": 3, "left": 1, "header": [1, 4711, 300, ...]}

``left`` counts the frames of the same feed message that are still to come; a mark is a batch
without rows. What is tentative has a ``why``, too:

    {"missing": [["load", 1700000000]], "share": 0.5}

and what comes early ``claims``: bits and suffix of a trail and whether it is timed, the first id at
the source (or time) and the one after the last, and the newest time of those (``core.provenance``):

    [[1, 0, 0, 4711, 5011, 1700000000]]

``{"refused": why, "detail": "..."}`` in its place ends a feed that was not granted. Whoever brings
tuples is told ``{"closing": true}`` in place of an acknowledgement when it is to end its call.

``PROTOCOL`` is sent with every call. It changes when the meaning of anything here changes; a
peer of another protocol is refused by name.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from holdfast.core.frame import Header, Kind, Missing, Why
from holdfast.core.messages import CheckpointShipped, FeedFrames, Message, SubscribeRefused
from holdfast.core.provenance import Claim, Trail
from holdfast.core.records import Membership
from holdfast.errors import HoldfastError

PROTOCOL = 5
CLOSING = "closing"
# What reading JSON and making something of it may raise, whatever was sent.
NOT_DECODED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


class WireError(HoldfastError):
    """A peer sent something that is no message of this protocol."""


Json = dict[str, Any]


# A feed's frames and checkpoints travel as record batches.
_MESSAGES: dict[str, Any] = {
    one.__name__: one for one in get_args(Message) if one not in (FeedFrames, CheckpointShipped)
}

# msgspec looks at a type when it first meets it, and a second thread that meets it meanwhile ends
# the process (a segmentation fault, seen with 0.22). So all are made known here, by one thread.
_KNOWN = [msgspec.json.Decoder(one) for one in (*_MESSAGES.values(), Membership)]


def encode_message(message: Message) -> bytes:
    """A message as JSON."""
    return msgspec.json.encode({"type": type(message).__name__, **msgspec.to_builtins(message)})


def decode_message(data: bytes) -> Message:
    """The message in ``data``; WireError if there is none."""
    try:
        found = msgspec.json.decode(data)
        message: Message = msgspec.convert(found, _MESSAGES[found["type"]])
        return message
    except NOT_DECODED as error:
        raise WireError(f"not a message of protocol {PROTOCOL}: {error!r}") from None


def plain_membership(membership: Membership) -> Json:
    """Who takes part, as JSON has it."""
    found: Json = msgspec.to_builtins(membership)
    return found


def decode_membership(found: Json) -> Membership:
    """What ``plain_membership`` gave; raises one of NOT_DECODED if it is none."""
    return msgspec.convert(found, Membership)


def encode_header(
    feed: int,
    seq: int,
    left: int,
    header: Header,
    why: Why | None = None,
    claims: tuple[Claim, ...] = (),
) -> bytes:
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
    if claims:
        found["claims"] = [
            [
                one.trail.bits,
                one.trail.suffix,
                # How they are claimed: by ids, by times, or each alone.
                2 if one.trail.alone else int(one.trail.timed),
                one.first_id,
                one.next_id,
                one.stime_max,
            ]
            for one in claims
        ]
    return msgspec.json.encode(found)


def _why(found: Json) -> Why:
    missing = (Missing(str(stream), int(since)) for stream, since in found["missing"])
    return Why(tuple(missing), None if found["share"] is None else float(found["share"]))


def _claim(bits: int, suffix: int, how: int, first_id: int, end: int, stime_max: int) -> Claim:
    return Claim(Trail(bits, suffix, how == 1, how == 2), first_id, end, stime_max)


def encode_refusal(refusal: SubscribeRefused) -> bytes:
    """The metadata that ends a feed that was not granted."""
    return msgspec.json.encode({"refused": refusal.why.value, "detail": refusal.detail})


def decode_metadata(data: bytes) -> Json:
    """The metadata of one frame; ``header`` becomes a Header, ``why`` a Why, and so on."""
    try:
        found: Json = msgspec.json.decode(data)
        if "header" in found:
            kind, *rest = found["header"]
            found["header"] = Header(Kind(kind), *(int(each) for each in rest))
        if "why" in found:
            found["why"] = _why(found["why"])
        if "claims" in found:
            found["claims"] = tuple(_claim(*map(int, each)) for each in found["claims"])
        return found
    except NOT_DECODED as error:
        raise WireError(f"not a frame of protocol {PROTOCOL}: {error!r}") from None
