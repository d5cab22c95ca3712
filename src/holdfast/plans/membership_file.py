"""Who takes part in a deployment beyond what its file says, on disk: ``data/membership.json``.

    {"epoch": 3, "gone": {"screen": 1, "main-2": 2},
     "added": {"main-3": "main-1"}, "places": {"main-3": "east"},
     "collected": [["screen", "out", "main-3", 3]]}

    ... "taking": [["counts.g2.1-1", "counts.1-1"]],
     "shards": {"counts": {"given": 2, "generations": [[1, 2], [2, 4]]}}}

``places`` says where a replica that was added runs, as ``replicas`` of the deployment file does;
``collected`` which readers keep no feed of a stream at which producer, and since when; ``taking``
which replicas of new shards take over from whom; ``leaving`` which copies are about to go, and
since when; ``shards`` of fragments that were rescaled how
many the file named then, and the number and the shards of each generation that takes part; ``used``
there is the last number that was given, where a generation was called off.

The machine that started the deployment decides, one change at a time, and numbers the changes.
Processes look at the file, servers are sent it, and all tell each other (``core.membership``).
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.core.records import Membership
from holdfast.deployment import Deployment, membership_path
from holdfast.durable import Damaged, make_private, read_document, write_document
from holdfast.flight.wire import NOT_DECODED, decode_membership, plain_membership


def read_membership(data: Path) -> Membership:
    """The newest membership that is known below a data directory."""
    path = membership_path(data)
    if not path.exists():
        return Membership()
    try:
        return decode_membership(_listed(read_document(path)))
    except NOT_DECODED as error:
        raise Damaged(path, f"it says nothing of who takes part ({error!r})") from None


def change_membership(
    deployment: Deployment,
    change: Callable[[Membership], Membership],
    places: Mapping[str, str] | None = None,
    shards: Mapping[str, Any] | None = None,
) -> Membership:
    """Decide who takes part from now on, durably; nobody else decides meanwhile.

    places  where those are who are added.
    shards  the generations of fragments that are rescaled.
    """
    make_private(deployment.data)
    with _deciding(deployment.data):
        path = membership_path(deployment.data)
        before = read_document(path) if path.exists() else {"places": {}}
        membership = change(read_membership(deployment.data))
        found = plain_membership(membership)
        document = {
            "epoch": found["epoch"],
            "gone": dict(found["gone"]),
            "added": dict(found["added"]),
            "collected": found["collected"],
            "taking": found["taking"],
            "leaving": dict(found["leaving"]),
            "places": {**before["places"], **(places or {})},
            "shards": {**before.get("shards", {}), **(shards or {})},
        }
        write_document(path, document)
    return membership


def _listed(document: dict[str, Any]) -> dict[str, Any]:
    # An earlier version knew of no copies that are about to go.
    document = {"leaving": {}, **document}
    pairs = {name: list(document[name].items()) for name in ("gone", "added", "leaving")}
    # An earlier version knew of no feeds that are collected, and of no shards that take over.
    later = {name: document.get(name, []) for name in ("collected", "taking")}
    return {"epoch": document["epoch"], **pairs, **later}


@contextmanager
def _deciding(data: Path) -> Iterator[None]:
    with (data / "membership.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class MembershipFile:
    """The membership as it is now: read again when the file changes."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._changed_at = 0
        self._found = Membership()

    def __call__(self) -> Membership:
        try:
            changed_at = membership_path(self._data).stat().st_mtime_ns
        except FileNotFoundError:
            return self._found
        if changed_at != self._changed_at:
            self._found = read_membership(self._data)
            self._changed_at = changed_at
        return self._found
