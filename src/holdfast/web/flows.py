"""Who reads what from whom, how fast and how late, and what each replica is worth for it.

A link that is not used is shown, too: a replica that could send a stream and is not asked to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.core.collection import Collection, FeedFacts, Running, StreamReplica
from holdfast.web.looking import Look


@dataclass(frozen=True)
class Reading:
    """One reader's input from one producer.

    next_id   how many tuples of the stream the reader has.
    boundary  everything older has come to it, in microseconds; 0 if that is not known.
    share     how much of it this producer brought first; None where only one is read.
    """

    sender: str
    reader: str
    stream: str
    next_id: int
    boundary: int
    share: float | None

    @property
    def key(self) -> str:
        """With tabs between the names, which no name has."""
        return f"{self.sender}\t{self.reader}\t{self.stream}"


def links(
    now: Look, before: Look | None, passed: float, producers: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Keyed by sender, reader and stream; ``producers`` of each stream."""
    older = {} if before is None else {each.key: each.next_id for each in readings(before)}
    cuts = cuts_of(now)
    found: dict[str, Any] = {}
    inputs: dict[tuple[str, str], set[str]] = {}
    for one in readings(now):
        late = None if one.boundary <= 0 else round(max(0.0, now.at - one.boundary / 1e6), 2)
        found[one.key] = {
            "rate": rate(one.next_id, older.get(one.key, 0), passed),
            "cut": (one.sender, one.reader) in cuts,
            "behind_s": late,
            "share": one.share,
        }
        inputs.setdefault((one.reader, one.stream), set()).add(one.sender)
    collected = set(collected_of(now))
    for (reader, stream), senders in inputs.items():
        for sender in producers.get(stream, ()):
            if sender not in senders:
                cut = (sender, reader) in cuts
                found[f"{sender}\t{reader}\t{stream}"] = {
                    "rate": 0.0,
                    "cut": cut,
                    "unused": True,
                    "collected": (sender, reader, stream) in collected,
                }
    shown = {tuple(key.split("\t")[:2]) for key in found}
    for sender, reader in cuts - shown:
        found[f"{sender}\t{reader}\t"] = {"rate": 0.0, "cut": True}
    return found


def rate(count: int, before: int, passed: float) -> float:
    """A second; a node that has begun anew says nothing of the rate."""
    return round((count - before) / passed, 1) if passed > 0 and count >= before > 0 else 0.0


def readings(look: Look) -> Iterator[Reading]:
    """Everything that is read, as the readers say it."""
    for name, status in look.nodes.items():
        for stream, each in status.get("inputs", {}).items():
            next_id, boundary = int(each["next_id"]), int(each.get("boundary", 0))
            shares: dict[str, float] = each.get("shares") or {}
            senders = dict.fromkeys(shares) | ({each["from"]: None} if each.get("from") else {})
            for sender in each.get("collected", ()):
                senders.pop(sender, None)
            for sender in senders:
                share = shares.get(sender) if len(shares) > 1 else None
                yield Reading(str(sender), name, str(stream), next_id, boundary, share)
        # One of an older version does not say more.
        if status.get("kind") == "client" and status.get("from") and not status.get("inputs"):
            output = look.deployment.clients[name].output
            boundary = int(status.get("boundary", 0))
            next_id = int(status["next_id"])
            yield Reading(str(status["from"]), name, output, next_id, boundary, None)


def collected_of(look: Look) -> Iterator[tuple[str, str, str]]:
    """Sender, reader and stream of every feed that was found not worth its cost."""
    for name, status in look.nodes.items():
        for stream, each in status.get("inputs", {}).items():
            for sender in each.get("collected", ()):
                yield str(sender), name, str(stream)


def cuts_of(look: Look) -> set[tuple[str, str]]:
    """Sender and reader of every link that is cut."""
    found = set()
    for name, status in look.nodes.items():
        cut = status.get("cut", {})
        found |= {(str(other), name) for other in cut.get("incoming", ())}
        found |= {(name, str(other)) for other in cut.get("outgoing", ())}
    return found


def utilities(look: Look) -> dict[str, float]:
    """What each replica is worth to the applications (``core/collection.py``).

    Applications are worth what the deployment says, one if nothing. Where none of a fragment's
    replicas is read by anybody here, applications elsewhere read them: each counts as one.
    """
    feeds = {
        StreamReplica(one.stream, one.sender, one.reader): FeedFacts(
            1.0, 1.0 if one.share is None else one.share
        )
        for one in readings(look)
    }
    if not feeds:
        return {}
    read, deployment = {feed.producer for feed in feeds}, look.deployment
    replicas = [
        name
        for spec in deployment.fragments.values()
        for name in spec.processes
        if name in look.nodes
    ]
    applications = {
        name: 1.0
        for spec in deployment.fragments.values()
        if read.isdisjoint(spec.processes)
        for name in spec.processes
        if "error" not in look.nodes.get(name, {"error": ""})
    }
    applications |= {
        name: client.worth for name, client in deployment.clients.items() if name in look.nodes
    }
    found = Collection(Running({}, {}, applications, feeds), 1).utilities()[1]
    return {name: found.get(name, 0.0) for name in replicas}
