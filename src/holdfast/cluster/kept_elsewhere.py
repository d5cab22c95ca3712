"""What nodes have kept on another machine, asked of the server that runs them there.

``answer`` is the server's side: it does what is asked with what its nodes have kept.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.cluster.kept_nodes import KeptNodes, StoppedAt
from holdfast.cluster.remote import RemoteServer
from holdfast.core.records import RecoveryRecord
from holdfast.core.settings import Keeping
from holdfast.deployment import Deployment
from holdfast.errors import HoldfastError
from holdfast.kept.packed_codec import decode_record, encode_record

# Copying a state may take a while.
_SECONDS = 120.0


class KeptElsewhere:
    """What nodes have kept where a server runs them."""

    def __init__(self, deployment: Deployment, server: str) -> None:
        self._server = RemoteServer(deployment, server)

    def place(self, node: str, streams: Iterable[str]) -> StoppedAt | None:
        found = self._ask("place", node, streams=list(streams))
        return None if found is None else msgspec.convert(found, StoppedAt)

    def log_end(self, node: str, stream: str) -> int | None:
        found: int | None = self._ask("log_end", node, stream=stream)
        return found

    def first_id(self, node: str, stream: str, boundary: int) -> int:
        return int(self._ask("first_id", node, stream=stream, boundary=boundary))

    def begin(self, node: str, network: Sequence[str], record: RecoveryRecord, keeps: bool) -> None:
        self._ask("begin", node, network=list(network), record=encode_record(record), keeps=keeps)

    def begin_new(
        self, node: str, network: Sequence[str], record: RecoveryRecord, keeping: Keeping
    ) -> None:
        kept = {"network": list(network), "record": encode_record(record), "kept": keeping.value}
        self._ask("begin_new", node, **kept)

    def pack(self, node: str) -> None:
        self._ask("pack", node)

    def read(self, node: str, offset: int) -> bytes:
        return base64.b64decode(self._ask("read", node, offset=offset))

    def write(self, node: str, offset: int, piece: bytes) -> None:
        self._ask("write", node, offset=offset, piece=base64.b64encode(piece).decode())

    def unpack(self, node: str) -> None:
        self._ask("unpack", node)

    def _ask(self, what: str, node: str, **options: Any) -> Any:
        return self._server.ask_kept({"what": what, "node": node, **options}, _SECONDS)


def answer(kept: KeptNodes, asked: dict[str, Any]) -> Any:
    """What ``KeptElsewhere`` asks for, of what nodes have kept here."""
    node = _plain(asked["node"])
    match asked["what"]:
        case "place":
            found = kept.place(node, map(_plain, asked["streams"]))
            return None if found is None else msgspec.to_builtins(found)
        case "log_end":
            return kept.log_end(node, _plain(asked["stream"]))
        case "first_id":
            return kept.first_id(node, _plain(asked["stream"]), int(asked["boundary"]))
        case "begin":
            record = decode_record(asked["record"])
            return kept.begin(node, asked["network"], record, bool(asked["keeps"]))
        case "begin_new":
            record = decode_record(asked["record"])
            return kept.begin_new(node, asked["network"], record, Keeping(asked["kept"]))
        case "pack":
            return kept.pack(node)
        case "read":
            return base64.b64encode(kept.read(node, int(asked["offset"]))).decode()
        case "write":
            return kept.write(node, int(asked["offset"]), base64.b64decode(asked["piece"]))
        case "unpack":
            return kept.unpack(node)
        case what:
            raise HoldfastError(f"what nodes have kept cannot be asked for {what!r}")


def _plain(name: object) -> str:
    """The name of a node or a stream, which is that of a directory here."""
    text = str(name)
    if text in ("", ".", "..") or "/" in text or "\0" in text:
        raise HoldfastError(f"the name of a node or a stream was expected, got {text!r}")
    return text
