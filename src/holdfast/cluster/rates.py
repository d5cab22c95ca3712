"""How much flows through the streams of a submission, as its nodes say.

Ids are dense, so how far a stream has come at two looks says its rate. What costs is bytes: a tuple
counts for as many as it is larger than the mean tuple of the submission. Nodes are asked seldom,
and what was known of a stream counts on while nobody answers for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from holdfast.cluster.status import node_status
from holdfast.deployment import Deployment

LOOK_SECONDS = 10.0
# How much one look counts.
_GAIN = 0.3


class Rates:
    """Tuples of the mean size a second, of every stream of one submission."""

    def __init__(self) -> None:
        self._looked_at = 0.0
        self._bytes: dict[str, float] = {}
        self._ids: dict[str, tuple[float, int]] = {}
        self._found: dict[str, float] = {}

    def look(self, deployment: Deployment) -> Mapping[str, float]:
        """The rates that are known; asks the nodes if that was not done just now."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            said = node_status(deployment, list(deployment.endpoints), 2.0)
            self._take(ids_of(deployment, said), now)
            self._bytes |= tuple_bytes(said)
        return self._by_size()

    def _by_size(self) -> dict[str, float]:
        sized = {stream: rate for stream, rate in self._found.items() if stream in self._bytes}
        count = sum(sized.values())
        if not count:
            return dict(self._found)
        mean = sum(rate * self._bytes[stream] for stream, rate in sized.items()) / count
        return {
            stream: rate * self._bytes.get(stream, mean) / mean
            for stream, rate in self._found.items()
        }

    def _take(self, ids: Mapping[str, int], now: float) -> None:
        for stream, next_id in ids.items():
            before = self._ids.get(stream)
            self._ids[stream] = (now, next_id)
            if before is None or next_id < before[1]:
                continue
            rate = (next_id - before[1]) / (now - before[0])
            known = self._found.get(stream, rate)
            self._found[stream] = known + _GAIN * (rate - known)


def ids_of(deployment: Deployment, said: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """How far each stream is: as far as whoever is furthest."""
    found: dict[str, int] = {}
    for name, source in deployment.sources.items():
        next_id = said.get(source.process, {}).get("next_id")
        if next_id is not None:
            found[name] = int(next_id)
    for fragment in deployment.fragments.values():
        for replica in fragment.processes:
            for stream, next_id in said.get(replica, {}).get("outputs", {}).items():
                found[stream] = max(found.get(stream, 0), int(next_id))
    return found


def tuple_bytes(said: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """How large a tuple of each stream is, as whoever has sent some of it says."""
    found: dict[str, float] = {}
    for told in said.values():
        found |= {stream: float(size) for stream, size in told.get("tuple_bytes", {}).items()}
    return found
